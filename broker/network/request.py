"""One request on its way to its response."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ottla.broker.network.principal import Principal
from ottla.broker.network.response_errors import errors_in
from ottla.broker.wire.apis import APIS
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.throttle import throttled
from ottla.runtime.disk import Buffer

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection

logger = logging.getLogger(__name__)

T = TypeVar("T")
Written = tuple[list[Buffer], dict[int, int]]
"""An answer as it goes to the wire, and how many there are of each error in it."""

_HEADER = Struct(">ii").pack  # size, correlation id
_TAGGED_HEADER = Struct(">iix").pack  # and an empty section of tagged fields
_JOIN_BYTES_MAX = 2048
"""Up to this size header and body are joined: one buffer to write is cheaper than two."""


class RequestContext:
    """A request between its handler and the wire. Answered once, now or later; answers leave in request order."""

    __slots__ = (
        "_close_callback",
        "_tagged",
        "api_key",
        "client_id",
        "connection",
        "correlation_id",
        "is_large",
        "response",
        "response_bytes",
        "throttle_time_ms",
        "version",
    )

    def __init__(
        self,
        connection: "Connection",
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        tagged: bool,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self._tagged = tagged
        self.response: list[Buffer] | None = None
        self.response_bytes = 0
        self.throttle_time_ms = 0
        self.is_large = False
        self._close_callback: Callable[[], None] | None = None

    def told(self) -> str:
        """What the log calls it."""
        name = APIS[self.api_key].name if self.api_key in APIS else self.api_key
        return f"{name} v{self.version} of {self.connection.peer} ({self.client_id})"

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.connection.principal

    @property
    def client_host(self) -> str:
        """From which address."""
        return self.connection.host

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def security_protocol(self) -> str:
        """Of the listener."""
        return self.connection.security_protocol

    @property
    def answered(self) -> bool:
        return self.response is not None

    def throttle(self, ms: int) -> None:
        """A quota is exceeded. The answer leaves when it is there and says so, whoever makes it, and from then on the connection is
        muted for as long (KIP-219). Of several the longest counts."""
        self.throttle_time_ms = max(self.throttle_time_ms, ms)

    def respond(self, buffers: list[Buffer]) -> None:
        """Sends the body. The buffers (of bytes) are written without a copy and must never change afterwards.

        On a connection that is gone the answer is dropped.
        """
        if self.response is not None:
            raise RuntimeError(f"request {self.correlation_id} of API {self.api_key} was answered twice")
        if self.throttle_time_ms:
            buffers = throttled(self.api_key, self.version, buffers, self.throttle_time_ms)
        tagged = self._tagged
        pack = _TAGGED_HEADER if tagged else _HEADER
        response: list[Buffer]
        if len(buffers) == 1:
            body = buffers[0]
            size = len(body)
            header = pack(size + 4 + tagged, self.correlation_id)
            response = [header + body] if size <= _JOIN_BYTES_MAX else [header, body]
        else:
            size = sum(map(len, buffers))
            header = pack(size + 4 + tagged, self.correlation_id)
            response = [header, *buffers]
        self.response = response
        self._close_callback = None  # it knows who parked the request, who knows the request
        self.response_bytes = size + len(header)
        self.connection.deliver(self, response)
        if self.throttle_time_ms:
            self.connection.mute(self.throttle_time_ms)

    def respond_message(self, message: msgspec.Struct) -> None:
        """Encodes the response for the request's version and sends it.

        A response that the version cannot carry is a mistake of ours; it costs the client its connection, not a wait.
        """
        if self.is_large:
            self.respond_with(lambda: message)
            return
        try:
            buffers = encoder(type(message), self.version)(message)
        except WireError as error:
            self.fail_connection(f"its answer could not be written: {error}")
            return
        self.count_errors(errors_in(message))
        self.respond(buffers)

    def respond_with(self, make: Callable[[], msgspec.Struct]) -> None:
        """The same with what ``make`` gives. Of a large request it is made on a thread, from what does not change any more."""
        if not self.is_large:
            self.respond_message(make())
            return
        self._close_callback = None  # who parked the request is through with it
        self.connection.write_beside(self, partial(_written, make, self.version), self._respond_written)

    def _respond_written(self, written: "Callable[[], Written]") -> None:
        try:
            buffers, errors = written()
        except Exception as error:
            if not isinstance(error, WireError):
                logger.exception("An answer could not be written, which is our mistake")
            self.fail_connection(f"its answer could not be written: {error}")
            error.__traceback__ = None  # it knows our callers, and they what knows the error
            return
        for code, count in errors.items():
            self.connection.count_error(self.api_key, code, count)
        self.respond(buffers)

    def read_beside(self, read: Callable[[], T], then: Callable[[T], None]) -> None:
        """For a large request: ``read`` runs on a thread, ``then`` goes on with what it gives; the answer is written there, too. Whatever
        ``read`` needs of the frame must be a copy."""
        self.is_large = True
        self.connection.read_beside(self, read, then)

    def count_errors(self, codes: Iterable[int]) -> None:
        """For the metrics: errors that the answer tells. Only those are to be given that are not 0."""
        for code in codes:
            self.connection.count_error(self.api_key, code)

    def is_of_follower(self) -> None:
        """For the metrics: a fetch is not a consumer's."""
        self.connection.count_follower(self)

    def no_response(self) -> None:
        """Ends a request that the protocol does not answer (Produce with acks=0)."""
        if self.response is not None:
            raise RuntimeError(f"request {self.correlation_id} of API {self.api_key} was answered twice")
        self.response = []
        self._close_callback = None
        self.connection.deliver(self, [])
        if self.throttle_time_ms:
            self.connection.mute(self.throttle_time_ms)

    def fail_connection(self, reason: str) -> None:
        """Closes the connection with one log line; the requests that wait on it are dropped."""
        self.connection.fail(f"{reason} (API key {self.api_key} version {self.version})")

    def on_close(self, callback: Callable[[], None]) -> None:
        """Calls back if the connection goes before the answer, so that whoever parked the request forgets it."""
        earlier = self._close_callback
        self._close_callback = callback if earlier is None else partial(_call_both, earlier, callback)

    def drop(self) -> None:
        """Called by the connection when it is gone."""
        callback, self._close_callback = self._close_callback, None
        if callback is not None and self.response is None:
            callback()


def _written(make: Callable[[], msgspec.Struct], version: int) -> Written:
    message = make()
    return encoder(type(message), version)(message), Counter(errors_in(message))  # there may be half a million


def _call_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()
