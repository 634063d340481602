"""A broker's client of another broker: fetchers use it, and whoever else has to ask a leader."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from ottla.broker.links.connection import LinkConnection, OnAnswer
from ottla.broker.links.versions import FIRST_ASKED, Versions, common, read_versions, versions_request
from ottla.broker.wire.apis import API_VERSIONS
from ottla.runtime.settings.endpoints import Endpoint, reached_by
from ottla.runtime.timers import LoopTimers, Timer

FIRST_BACKOFF_MS = 20

OnLost = Callable[[bool], None]
"""Told whether it was the other end that closed the connection."""

logger = logging.getLogger(__name__)


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``stall_ms``: an owed answer of which not a byte came for so long breaks the connection. ``in_flight_max`` requests wait
    for their answers at most. ``detours``: addresses that are reached by way of others."""

    client_id: str
    connect_timeout_ms: int = 2_000
    backoff_ms_max: int = 1_000
    stall_ms: int = 5_000
    in_flight_max: int = 64
    detours: dict[Endpoint, Endpoint] = {}


class BrokerLink:
    """One connection, made anew when it breaks, with growing pauses; up when the other end has said what it speaks.

    ``on_up`` is told each time that requests may be sent, ``on_lost`` each time that they may not any more: no answer comes then to what
    was sent before. Neither is told of a `move` or after `close`.
    """

    def __init__(
        self,
        broker_id: int,
        settings: LinkSettings,
        timers: LoopTimers,
        on_up: Callable[[], None],
        on_lost: OnLost,
    ) -> None:
        self.broker_id = broker_id
        self.is_up = False
        self._settings = settings
        self._timers = timers
        self._on_up = on_up
        self._on_lost = on_lost
        self._address: tuple[str, int] | None = None  # not known yet
        self._versions: Versions = {}
        self._connection: LinkConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._retry: Timer | None = None
        self._backoff_ms = FIRST_BACKOFF_MS
        self._wanted = self._closed = False

    # What it is told.

    def connect(self) -> None:
        """From now on it is connected whenever it can be."""
        self._wanted = True
        if self._retry is None:
            self._try()

    def move(self, address: tuple[str, int] | None) -> bool:
        """The broker is to be reached at ``address`` from now on; None: nobody knows where it is. False if that is no news."""
        if address == self._address:
            return False
        self._address = address
        self._drop()
        if self._retry is not None:
            self._retry.cancel()
        self._backoff_ms = FIRST_BACKOFF_MS
        self._try()
        return True

    def worked(self) -> None:
        """An answer was of use: the next failure is a first one again."""
        self._backoff_ms = FIRST_BACKOFF_MS

    def break_off(self, reason: str) -> None:
        """The other end answers what it should not: a new connection is made, after a pause."""
        if self._connection is not None:
            self._connection.break_off(reason)

    def close(self) -> None:
        self._closed = True
        self._drop()
        if self._retry is not None:
            self._retry.cancel()

    def has_ended(self) -> bool:
        """Whether it was up and the other end closed the connection, also when the loop has not come to read of it yet."""
        return self.is_up and self._connection is not None and self._connection.has_ended()

    # Requests.

    @property
    def room(self) -> int:
        """How many requests may be sent now."""
        connection = self._connection
        return self._settings.in_flight_max - connection.owed if self.is_up and connection is not None else 0

    def version(self, key: int, least: int, greatest: int) -> int:
        """The greatest version of an API that both speak, -1 if there is none. While it is up."""
        return common(self._versions, key, least, greatest)

    def request(self, key: int, version: int, body: bytes, on_answer: OnAnswer) -> None:
        """Sends a request; its answer comes after those of the requests before. A WireError of ``on_answer`` breaks the connection."""
        assert self._connection is not None, "requests are sent while it is up"
        assert self.room > 0, "requests are sent while there is room"
        self._connection.request(key, version, body, on_answer)

    # The connection.

    def _try(self) -> None:
        self._retry = None
        if self._closed or not self._wanted or self._connection is not None or self._address is None:
            return
        settings = self._settings
        connection = LinkConnection(settings.client_id, self._timers, settings.stall_ms, self._connected, self._lost)
        self._connection = connection
        self._connecting = asyncio.get_running_loop().create_task(
            self._open(connection, *reached_by(settings.detours, *self._address))
        )

    async def _open(self, connection: LinkConnection, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, host, port)
        except (OSError, TimeoutError) as error:
            connection.break_off(str(error) or "no answer")

    def _connected(self) -> None:
        self._ask_versions(FIRST_ASKED)

    def _ask_versions(self, version: int) -> None:
        assert self._connection is not None, "it is connected"
        told = partial(self._versions_told, version)
        self._connection.request(API_VERSIONS, version, versions_request(version), told)

    def _versions_told(self, version: int, frame: memoryview, position: int) -> None:
        found = read_versions(frame, position, version)
        if isinstance(found, int):
            self._ask_versions(found)
            return
        self._versions = found
        self.is_up = True
        self._on_up()

    def _lost(self, reason: str, by_peer: bool) -> None:
        was_up = self.is_up
        logger.log(logging.INFO if was_up else logging.DEBUG, "Broker %d is out of reach: %s", self.broker_id, reason)
        self._drop()
        self._retry = self._timers.call_later_ms(self._backoff_ms, self._try)
        self._backoff_ms = min(2 * self._backoff_ms, self._settings.backoff_ms_max)
        if was_up:
            self._on_lost(by_peer)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self.is_up = False
        if connection is not None:
            connection.close()
        if self._connecting is not None and self._connecting is not _current_task():
            self._connecting.cancel()
        self._connecting = None


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
