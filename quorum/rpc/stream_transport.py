"""`RpcTransport` over plain asyncio streams of bytes: the simulation's transport.

A client opens with a greeting line, ``OTTLA/1 <service>\\n``; then both sides send frames: a length (4 bytes, big endian)
and a protobuf message. Nothing else is on the wire, so what a connection costs in the simulation is the program's own.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from typing import cast

from ottla.quorum.rpc.channel import Channel, LinkEvents
from ottla.quorum.rpc.session import Session
from ottla.quorum.rpc.transport import (
    MESSAGE_BYTES_MAX,
    Handler,
    PerConnection,
    RpcChannel,
    RpcServer,
    Service,
    Stranger,
)

_GREETING = b"OTTLA/1 "
_GREETING_BYTES_MAX = 128
_LENGTH = struct.Struct(">I")

_logger = logging.getLogger(__name__)


class _FrameError(Exception):
    """The peer does not speak this protocol."""


class _Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def foreign(self) -> bytes:
        """All that came, if it does not begin as a greeting does."""
        return b"" if self._buffer.startswith(_GREETING[: len(self._buffer)]) else bytes(self._buffer)

    def line(self) -> bytes | None:
        """The greeting without its end, once it is whole. Raises _FrameError when it is none."""
        end = self._buffer.find(b"\n", 0, _GREETING_BYTES_MAX)
        if not self._buffer.startswith(_GREETING[: len(self._buffer)]) or (
            end < 0 and len(self._buffer) >= _GREETING_BYTES_MAX
        ):
            raise _FrameError("not an Ottla node")
        if end < 0:
            return None
        line = bytes(self._buffer[len(_GREETING) : end])
        del self._buffer[: end + 1]
        return line

    def message(self) -> bytes | None:
        """The next message, once it is whole. Raises _FrameError for one that is too long, before it is stored."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if length > MESSAGE_BYTES_MAX:
            raise _FrameError(f"a message of {length} bytes is too long")
        end = _LENGTH.size + length
        if len(buffer) < end:
            return None
        message = bytes(memoryview(buffer)[_LENGTH.size : end])
        del buffer[:end]
        return message


def _frame(data: bytes) -> list[bytes]:
    return [_LENGTH.pack(len(data)), data]


class _ClientLink(asyncio.Protocol):
    """One outgoing connection."""

    def __init__(self, host: str, port: int, service: Service, events: LinkEvents) -> None:
        self._events: LinkEvents | None = events
        self._greeting = _GREETING + service.name.encode() + b"\n"
        self._frames = _Frames()
        self._transport: asyncio.WriteTransport | None = None
        self._connecting = asyncio.get_running_loop().create_task(self._connect(host, port))

    async def _connect(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except OSError as error:
            self._lost(str(error))

    def send(self, data: bytes) -> None:
        assert self._transport is not None, "send follows on_open"
        self._transport.writelines(_frame(data))

    def close(self) -> None:
        self._events = None
        if self._transport is not None:
            self._transport.abort()
        elif self._connecting is not asyncio.current_task():
            self._connecting.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's are no subclasses of asyncio's
        if self._events is None:
            self._transport.abort()
            return
        self._transport.write(self._greeting)
        self._events.on_open()

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        try:
            while self._events is not None and (message := self._frames.message()) is not None:
                self._events.on_message(message)
        except _FrameError as error:
            self._lost(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(str(exc) if exc else "the connection was closed")

    def _lost(self, reason: str) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.on_lost(reason)


class _ServerConnection(asyncio.Protocol):
    """One incoming connection."""

    def __init__(
        self,
        handlers: Mapping[str, tuple[Service, Handler | PerConnection]],
        connections: "dict[_ServerConnection, None]",
        stranger: Stranger | None,
    ):
        self._handlers = handlers
        self._connections = connections
        self._stranger = stranger
        self._frames = _Frames()
        self._session: Session | None = None
        self._may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of asyncio's
        self._peer = str(transport.get_extra_info("peername"))
        self._connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.pop(self, None)
        if self._session is not None:
            self._session.close()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        foreign = self._frames.foreign() if self._session is None and self._stranger is not None else b""
        if foreign and self._stranger is not None:
            self._connections.pop(self, None)
            self._stranger(self._transport, foreign)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Handles what has arrived, as far as there is room for the replies; the rest waits in a socket that is not read."""
        if self._transport.is_closing():
            return
        try:
            if self._session is None and not self._greet():
                return
            while self._has_room() and (message := self._frames.message()) is not None:
                assert self._session is not None
                if not self._session.receive(message):
                    self._transport.abort()
                    return
        except _FrameError as error:
            self._complain(str(error))
            self._transport.abort()
            return
        self._read_or_pause()

    def _complain(self, reason: str, _kind: str = "") -> None:
        _logger.warning("%s: closing the connection: %s", self._peer, reason)

    def _greet(self) -> bool:
        line = self._frames.line()
        if line is None:
            return False
        known = self._handlers.get(line.decode("ascii", "replace"))
        if known is None:
            raise _FrameError(f"no such service: {line!r}")
        self._session = Session(*known, self._peer, self._complain, self._send, self._go_on_later)
        return True

    def _has_room(self) -> bool:
        return self._may_write and self._session is not None and not self._session.is_full

    def _read_or_pause(self) -> None:
        if self._has_room() or self._session is None:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _send(self, data: bytes) -> None:
        self._transport.writelines(_frame(data))

    def _go_on_later(self) -> None:
        asyncio.get_running_loop().call_soon(self._go_on)

    def pause_writing(self) -> None:
        self._may_write = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._may_write = True
        self._go_on_later()


class _Server:
    """`RpcServer` over an asyncio server."""

    def __init__(self, server: asyncio.AbstractServer, port: int, connections: dict[_ServerConnection, None]) -> None:
        self._server = server
        self._connections = connections
        self.port = port

    async def close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await self._server.wait_closed()


class StreamTransport:
    """Length-prefixed protobuf messages over the running loop's own connections."""

    async def prepare(self, cluster_id: str) -> None:
        """Nothing: nobody but the cluster is in a simulation."""

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Mapping[Service, Handler | PerConnection],
        stranger: Stranger | None = None,
    ) -> RpcServer:
        by_name = {service.name: (service, handler) for service, handler in handlers.items()}
        connections: dict[_ServerConnection, None] = {}
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _ServerConnection(by_name, connections, stranger), host, port)
        return _Server(server, server.sockets[0].getsockname()[1], connections)

    def channel(self, host: str, port: int, service: Service, on_broken: Callable[[], None]) -> RpcChannel:
        def connect(events: LinkEvents) -> _ClientLink:
            return _ClientLink(host, port, service, events)

        return Channel(f"{host}:{port}", service, connect, on_broken)

    async def close(self) -> None:
        await asyncio.sleep(0)  # an aborted transport lets go of its socket in the loop's next turn
