"""The door in front of gRPC's server: lets HTTP/2 clients in, and says who else knocked.

gRPC drops a connection that is not HTTP/2 without a word to anybody, and its Python side offers no place to look. An
operator who pointed a Kafka client at the controller's port deserves a line in the log, so the port belongs to this gate:
it reads a connection's first bytes and, when they are HTTP/2's preface (RFC 9113, 3.4), joins it to the gRPC server's Unix
socket. The second hop is lost in the noise of a call's 0.17 ms. In return the gRPC server starts with the first visitor only: a node that
is alone in its quorum never imports gRPC (60 ms, 20 MB).
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable
from typing import cast

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_PREFACE_TIMEOUT_S = 5

_logger = logging.getLogger(__name__)


class Gate:
    """Listens on a port and passes HTTP/2 connections on to `socket_path`.

    ``start_inside`` is awaited once, before the first of them: then somebody has to listen there.
    """

    def __init__(self, start_inside: Callable[[], Awaitable[None]]) -> None:
        self._start_inside = start_inside
        self._starting: asyncio.Future[None] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True)
        self._server: asyncio.Server | None = None
        self._connections: dict[_Visitor, None] = {}

    @property
    def socket_path(self) -> str:
        """Where the gRPC server has to listen; only this user may connect there."""
        return os.path.join(self._directory.name, "grpc")

    @property
    def port(self) -> int:
        assert self._server is not None, "open() comes first"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self, host: str, port: int) -> None:
        """Begins to listen. OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Visitor(self._join_inside, self._connections), host, port)
        except OSError:
            self._directory.cleanup()
            raise

    async def _join_inside(self, protocol: asyncio.Protocol) -> None:
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start_inside())
        await asyncio.shield(self._starting)
        await asyncio.get_running_loop().create_unix_connection(lambda: protocol, self.socket_path)

    async def close(self) -> None:
        """Stops listening and breaks every connection. Nothing starts inside after this."""
        if self._server is not None:
            self._server.close()
        for visitor in list(self._connections):
            visitor.abort()
        if self._starting is not None:
            await self._starting
        self._directory.cleanup()


class _Pipe(asyncio.Protocol):
    """One side of a connection that is passed on; what it receives, its ``other`` side sends."""

    def __init__(self) -> None:
        self.other: _Pipe | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        # At once, not after what was written: a peer must hear of a broken connection as if the gate were not there.
        if self.other is not None:
            self.other.close(exc)
            self.other = None

    def close(self, exc: Exception | None) -> None:
        self.other = None
        if self.transport is not None:
            self.transport.close() if exc is None else self.transport.abort()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class _Visitor(_Pipe):
    """A connection from outside, not let in before it has shown the preface."""

    def __init__(
        self, join_inside: Callable[[asyncio.Protocol], Awaitable[None]], connections: "dict[_Visitor, None]"
    ) -> None:
        super().__init__()
        self._join_inside = join_inside
        self._connections = connections
        self._first = b""
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections[self] = None
        self._deadline = asyncio.get_running_loop().call_later(_PREFACE_TIMEOUT_S, self._refuse)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._first += data  # also while it is being joined: uvloop may deliver what it had read before the pause
        if self._joining is None:
            self._judge()

    def _judge(self) -> None:
        shown = self._first[: len(_PREFACE)]
        if not _PREFACE.startswith(shown):
            self._refuse()
        elif len(shown) == len(_PREFACE):
            assert self.transport is not None
            self._deadline.cancel()
            self.transport.pause_reading()
            self._joining = asyncio.get_running_loop().create_task(self._join())

    async def _join(self) -> None:
        inside = _Pipe()
        inside.other = self  # before it connects: the server inside speaks first, perhaps before the await returns
        try:
            await self._join_inside(inside)
        except OSError as error:
            _logger.warning("cannot reach the gRPC server behind the gate: %s", error)
            self.abort()
            return
        assert inside.transport is not None
        assert self.transport is not None
        if self.transport.is_closing():
            inside.transport.abort()
            return
        self.other = inside
        inside.transport.write(self._first)
        self._first = b""
        self.transport.resume_reading()

    def _refuse(self) -> None:
        assert self.transport is not None
        peer = self.transport.get_extra_info("peername")
        _logger.warning("%s: closing the connection: not a gRPC client: it began with %r", peer, self._first[:32])
        self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._connections.pop(self, None)
        super().connection_lost(exc)
