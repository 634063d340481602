"""The half of a channel that every transport shares: calls that wait for their answers, and coming back after a failure."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from google.protobuf.message import DecodeError

from ottla.quorum.rpc.transport import OUTSTANDING_MAX, OnDone, Request, Service

_FIRST_BACKOFF_MS = 10
_LONGEST_BACKOFF_MS = 100  # a peer that comes back is reached within this time of being there
_CONNECT_TIMEOUT_MS = 2000

_logger = logging.getLogger(__name__)


class LinkEvents(Protocol):
    """What a link tells its channel, on the loop and never from inside a call of the channel to the link."""

    def on_open(self) -> None: ...

    def on_message(self, data: bytes) -> None: ...

    def on_lost(self, reason: str) -> None:
        """The last event of a link."""
        ...


class Link(Protocol):
    """One connection, or the attempt to make one."""

    def send(self, data: bytes) -> None:
        """Only after ``on_open``. Does not wait; the channel bounds what can be under way."""
        ...

    def close(self) -> None:
        """No event comes after this."""
        ...


class Channel:
    """`RpcChannel` over links that ``connect`` makes."""

    def __init__(
        self, address: str, service: Service, connect: Callable[[LinkEvents], Link], on_broken: Callable[[], None]
    ) -> None:
        self._address = address
        self._service = service
        self._connect = connect
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._link: _CurrentLink | None = None
        self._backoff_ms = _FIRST_BACKOFF_MS
        self._retry: asyncio.TimerHandle | None = None
        self._last_id = 0
        self._calls: dict[int, tuple[OnDone, asyncio.TimerHandle]] = {}
        self._unsent: dict[int, bytes] = {}
        self._closed = False

    def call(self, request: Request, on_done: OnDone, timeout_ms: int) -> None:
        if self._closed or len(self._calls) >= OUTSTANDING_MAX:
            self._loop.call_soon(on_done, None)
            return
        self._last_id = call_id = self._last_id + 1
        request.correlation_id = call_id
        timer = self._loop.call_later(timeout_ms / 1000, self._finish, call_id, None)
        self._calls[call_id] = (on_done, timer)
        data = request.SerializeToString()
        link = self._link
        if link is not None and link.is_open:
            link.link.send(data)
            return
        self._unsent[call_id] = data
        if link is None and self._retry is None:
            self._open_link()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._drop_link()
        if self._retry is not None:
            self._retry.cancel()
        self._loop.call_soon(self._fail_calls)

    def _open_link(self) -> None:
        self._retry = None
        self._link = _CurrentLink(self)
        self._link.start(self._connect, self._loop)

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.drop()
            self._link = None

    def _opened(self) -> None:
        assert self._link is not None, "a dropped link has no events"
        self._backoff_ms = _FIRST_BACKOFF_MS
        unsent, self._unsent = self._unsent, {}
        for data in unsent.values():
            self._link.link.send(data)

    def _received(self, data: bytes) -> None:
        try:
            response = self._service.response_type.FromString(data)
        except DecodeError:
            self._lost("sent a message that cannot be read")
            return
        self._finish(response.correlation_id, response)  # type: ignore[attr-defined]  # each service's messages have one

    def _lost(self, reason: str) -> None:
        # A link that never opened is a peer that is down: its caller tries again and again, and says so itself.
        level = logging.INFO if self._link is not None and self._link.is_open else logging.DEBUG
        _logger.log(level, "%s of %s: %s", self._service.name, self._address, reason)
        self._drop_link()
        self._retry = self._loop.call_later(self._backoff_ms / 1000, self._retry_if_wanted)
        self._backoff_ms = min(2 * self._backoff_ms, _LONGEST_BACKOFF_MS)
        self._fail_calls()
        if not self._closed:
            self._on_broken()

    def _retry_if_wanted(self) -> None:
        self._retry = None
        if self._unsent and not self._closed:
            self._open_link()

    def _fail_calls(self) -> None:
        for call_id in list(self._calls):
            self._finish(call_id, None)

    def _finish(self, call_id: int, response: object | None) -> None:
        call = self._calls.pop(call_id, None)
        if call is None:
            return  # its time ran out before
        self._unsent.pop(call_id, None)
        on_done, timer = call
        timer.cancel()
        on_done(response)


class _CurrentLink:
    """Passes on the events of one link until it is dropped, so that a late one cannot be taken for its successor's."""

    link: Link

    def __init__(self, channel: Channel) -> None:
        self._channel: Channel | None = channel
        self.is_open = False

    def start(self, connect: Callable[[LinkEvents], Link], loop: asyncio.AbstractEventLoop) -> None:
        self._deadline = loop.call_later(_CONNECT_TIMEOUT_MS / 1000, self.on_lost, "no answer")
        self.link = connect(self)

    def drop(self) -> None:
        self._channel = None
        self._deadline.cancel()
        self.link.close()

    def on_open(self) -> None:
        if self._channel is not None:
            self.is_open = True
            self._deadline.cancel()
            self._channel._opened()

    def on_message(self, data: bytes) -> None:
        if self._channel is not None:
            self._channel._received(data)

    def on_lost(self, reason: str) -> None:
        if self._channel is not None:
            self._channel._lost(reason)
