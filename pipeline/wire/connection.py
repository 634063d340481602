"""One connection to one broker: frames out and in, in their order, each within its time."""

import socket
import ssl
import time
from collections import deque
from struct import Struct
from typing import Any, NamedTuple, Self

from ottla.broker.wire.apis import APIS
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import Buffer
from ottla.broker.wire.schema import message
from ottla.pipeline.wire.codec import Body, decode, encode
from ottla.pipeline.wire.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from ottla.pipeline.wire.settings import ClientSettings
from ottla.runtime.errors import ErrorCode

VERSIONS_ASKED = 3
_SIZE = Struct(">i")
_SMALL = 1 << 16
"""Buffers below this are joined before they are sent."""


class Request(NamedTuple):
    """One that waits for its answer."""

    api: str
    version: int
    correlation_id: int


class Connection:
    """Requests may be sent ahead; answers come in their order. Whatever fails closes it."""

    def __init__(self, address: tuple[str, int], settings: ClientSettings, node_id: int = -1) -> None:
        self.address = address
        self.node_id = node_id
        self.waiting: deque[Request] = deque()
        self._settings = settings
        self._versions: dict[str, tuple[int, int]] = {}
        self._sent = 0
        self._socket: socket.socket | None = None

    @classmethod
    def open(cls, address: tuple[str, int], settings: ClientSettings, node_id: int = -1) -> Self:
        """Connects, and learns what the broker speaks. Raises BrokerUnreachableError."""
        connection = cls(address, settings, node_id)
        try:
            connection._connect()
            connection._learn_versions()
        except (OSError, ConnectionLostError, RequestTimedOutError) as error:
            connection.close()
            raise BrokerUnreachableError(connection.name, "connect", connection._why_not(error)) from error
        return connection

    @property
    def name(self) -> str:
        node = f"{self.node_id} " if self.node_id >= 0 else ""
        return f"{node}({self.address[0]}:{self.address[1]})"

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def outstanding(self) -> int:
        return len(self.waiting)

    def close(self) -> None:
        """Twice does nothing. What waits will not be answered."""
        self.waiting.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def version(self, api: str, most: int = 1 << 15, least: int = 0) -> int:
        """The highest version that the broker and we have, between these. Raises UnsupportedApiError."""
        schema = message(f"{api}Request")
        stable = max(version for version in schema.versions if version not in schema.unstable)
        first, last = self._versions.get(api, (1, 0))
        found = min(last, stable, most)
        if found < max(first, least, schema.versions.first):
            offered = f"{first}-{last}" if first <= last else "not at all"
            wanted = f"{max(least, schema.versions.first)}-{min(stable, most)}"
            raise UnsupportedApiError(self.name, api, wanted, offered)
        return found

    def offers(self, api: str, version: int = 0) -> bool:
        """Whether the broker has that version of an API, or one above."""
        first, last = self._versions.get(api, (1, 0))
        return max(first, version) <= last

    def ask(self, api: str, body: Body, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Sends and waits for the answer; nothing else may be outstanding."""
        assert not self.waiting, self.waiting
        self.send(api, body, version)
        return self.receive(timeout_s)

    def send(self, api: str, body: Body, version: int | None = None) -> Request:
        """Sends without waiting. Raises ConnectionLostError."""
        request = Request(api, self.version(api) if version is None else version, self._sent)
        buffers = encode(api, request.version, body, request.correlation_id, self._settings.client_id)
        self._sent = (self._sent + 1) & 0x7FFFFFFF
        try:
            self._send_all(buffers)
        except OSError as error:
            raise self._lost(api, error) from error
        self.waiting.append(request)
        return request

    def receive(self, timeout_s: float | None = None) -> Any:
        """The answer to the oldest request. Raises ConnectionLostError, RequestTimedOutError."""
        request = self.waiting[0]
        until = time.monotonic() + (self._settings.request_timeout_s if timeout_s is None else timeout_s)
        try:
            (size,) = _SIZE.unpack(self._read(4, until))
            if size < 4:
                raise ConnectionError(f"an answer of {size} bytes")
            correlation_id, answer = decode(request.api, request.version, self._read(size, until))
        except (OSError, WireError) as error:
            raise self._lost(request.api, error) from error
        if correlation_id != request.correlation_id:
            mixed_up = ConnectionError(f"answer {correlation_id} came in the place of {request.correlation_id}")
            raise self._lost(request.api, mixed_up)
        self.waiting.popleft()
        return answer

    def _why_not(self, error: Exception) -> str:
        if not isinstance(error, TimeoutError):
            return _reason(error)
        hint = "" if self._settings.security_protocol == "PLAINTEXT" else ": does this port speak TLS?"
        return f"no answer in {self._settings.request_timeout_ms} ms{hint}"

    def _connect(self) -> None:
        timeout_s = self._settings.request_timeout_s
        context = self._settings.tls_context()
        connected = socket.create_connection(self.address, timeout_s)
        self._socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_RCVBUF, self._settings.receive_buffer_bytes),
            (socket.SO_SNDBUF, self._settings.send_buffer_bytes),
        ):
            if size > 0:
                connected.setsockopt(socket.SOL_SOCKET, option, size)
        if context is not None:
            self._socket = context.wrap_socket(connected, server_hostname=self.address[0])

    def _learn_versions(self) -> None:
        """An older broker answers in version 0 and says that it is too new for it: then we ask in that."""
        software = {"client_software_name": "ottla-spark", "client_software_version": "1"}
        self._versions = {"ApiVersions": (0, VERSIONS_ASKED)}
        answer = self._ask_versions(software, VERSIONS_ASKED)
        if answer is None or answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._ask_versions({}, 0)
        if answer is None or answer.error_code:
            raise ConnectionLostError(self.name, "ApiVersions", "it does not say what it speaks")
        offered = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        self._versions = {APIS[key].name: span for key, span in offered.items() if key in APIS}

    def _ask_versions(self, body: Body, version: int) -> Any:
        """None for an answer of version 0 to a request of another, which says nothing but that."""
        self.send("ApiVersions", body, version)
        until = time.monotonic() + self._settings.request_timeout_s
        (size,) = _SIZE.unpack(self._read(4, until))
        if not 4 <= size < 1 << 20:
            raise ConnectionError("this is not a Kafka broker, or the port wants TLS")
        frame = self._read(size, until)
        self.waiting.popleft()
        try:
            return decode("ApiVersions", version, frame)[1]
        except WireError:
            return None

    def _send_all(self, buffers: list[Buffer]) -> None:
        if self._socket is None:
            raise ConnectionError("it is closed")
        self._socket.settimeout(self._settings.request_timeout_s)
        small: list[Buffer] = []
        for buffer in buffers:
            if len(buffer) < _SMALL:
                small.append(buffer)
                continue
            if small:
                self._socket.sendall(b"".join(small))
                small.clear()
            self._socket.sendall(buffer)
        if small:
            self._socket.sendall(b"".join(small))

    def _read(self, size: int, until: float) -> memoryview:
        frame = memoryview(bytearray(size))
        have = 0
        while have < size:
            if self._socket is None:
                raise ConnectionError("it is closed")
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(frame[have:])
            if not count:
                raise ConnectionError("it closed the connection")
            have += count
        return frame

    def _lost(self, api: str, error: Exception) -> ConnectionLostError | RequestTimedOutError:
        self.close()
        if isinstance(error, TimeoutError):
            said = f"no answer in {self._settings.request_timeout_ms} ms (kafka.request.timeout.ms)"
            return RequestTimedOutError(self.name, api, said)
        return ConnectionLostError(self.name, api, _reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionLostError | RequestTimedOutError):
        return error.reason
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
