"""The door in front of gRPC's server: lets HTTP/2 clients in, bounds what strangers may hold, and says who else knocked.

gRPC drops a connection that is not HTTP/2 without a word to anybody, its Python side offers no place to look, and it takes in
whatever anybody sends up to the largest message. So the port belongs to this gate: it reads a connection's first bytes and, when they
are HTTP/2's preface (RFC 9113, 3.4), joins it to the gRPC server's Unix socket, from a name of its own by which the server
inside finds out who that is. The second hop is lost in the noise of a call's 0.17 ms. Who begins otherwise is a client of Kafka's
protocol, and handed over to who speaks that: no frame of it is as long as those bytes would say.
"""

import asyncio
import contextlib
import logging
import os
import socket
import tempfile
from typing import cast

from ottla.quorum.rpc.admission import KNOCK_S, KNOWN_FIRST_MESSAGE_S, UNKNOWN_BYTES_MAX, Admission, DoorLimits
from ottla.quorum.rpc.transport import Stranger

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_TLS = b"\x16\x03"
_COMPLAINTS_MAX = 1000

_logger = logging.getLogger(__name__)


class Gate:
    """Listens on a port and passes HTTP/2 connections on to `socket_path`, where somebody has to listen before `open`."""

    def __init__(self, limits: DoorLimits, *, knock_s: float = KNOCK_S, stranger: Stranger | None = None) -> None:
        """``stranger`` is given who does not speak HTTP/2; without, they are refused."""
        self.stranger = stranger
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True)
        self._server: asyncio.Server | None = None
        self._visitors: dict[str, Visitor] = {}  # by the name of their connection inside
        self._number = 0
        self._complaints: dict[tuple[str, str], int] = {}
        self.admission: Admission[Visitor] = Admission(limits)
        self.knock_s = knock_s

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
        self._server = await loop.create_server(self._visitor, host, port)

    def _visitor(self) -> "Visitor":
        self._number += 1
        name = os.path.join(self._directory.name, str(self._number))
        visitor = self._visitors[name] = Visitor(self, name)
        return visitor

    def visitor(self, name: str) -> "Visitor | None":
        """Who connected inside from ``name``, as gRPC gives its peer's; None when it has left."""
        return self._visitors.get(name.removeprefix("unix:"))

    def left(self, visitor: "Visitor") -> None:
        self._visitors.pop(visitor.name, None)
        self.admission.leave(visitor, visitor.host)

    async def connect_inside(self, name: str, protocol: asyncio.Protocol) -> None:
        """OSError when the server inside cannot be reached."""
        inside = socket.socket(socket.AF_UNIX)
        try:
            inside.setblocking(False)
            inside.bind(name)
            await asyncio.get_running_loop().sock_connect(inside, self.socket_path)
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, sock=inside)
        except BaseException:
            inside.close()
            raise
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)  # the connection keeps its name

    def complain(self, visitor: "Visitor", reason: str, kind: str) -> None:
        """Logs what is wrong with a visitor. The same of the same address is said the first time, the second, the fourth
        and so on."""
        key = (visitor.host, kind)
        if len(self._complaints) >= _COMPLAINTS_MAX:
            self._complaints.clear()
        times = self._complaints[key] = self._complaints.get(key, 0) + 1
        often = f" ({times} times by now)" if times > 1 else ""
        level = logging.DEBUG if times & (times - 1) else logging.WARNING
        _logger.log(level, "%s: closing the connection: %s%s", visitor.address, reason, often)

    async def close(self) -> None:
        """Stops listening and breaks every connection."""
        if self._server is not None:
            self._server.close()
        for visitor in list(self._visitors.values()):
            visitor.abort()
        self._directory.cleanup()


class _Pipe(asyncio.Protocol):
    """One side of a connection that is passed on; what it receives, its ``other`` side sends."""

    def __init__(self) -> None:
        self.other: _Pipe | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        # A side that is closing will be told of as lost in a moment; uvloop raises where nothing can be written any more.
        if self.other is not None and self.other.transport is not None and not self.other.transport.is_closing():
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


def _kind_of(first: bytes) -> str:
    """What a stranger speaks: few kinds, or whoever sends other bytes each time would get a line each time."""
    if first.startswith(_TLS):
        return "TLS"
    return repr(first[:3]) if first[:3].isupper() else f"bytes {first[0] >> 5}"


class Visitor(_Pipe):
    """A connection from outside, not let in before it has shown the preface, and for a moment only before it has said something.

    The server inside tells it what came of that: `known`, `heard`, `ended`."""

    address, host = "?", "?"

    def __init__(self, gate: Gate, name: str) -> None:
        super().__init__()
        self.name = name
        self._gate = gate
        self._first = b""
        self._joining: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_known = False
        self._sent_bytes = 0  # since it was heard last

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        place = transport.get_extra_info("peername")
        if place:
            self.host, self.address = place[0], f"{place[0]}:{place[1]}"
        _logger.debug("%s: connected", self.address)
        self._arm(self._gate.knock_s)
        goes = self._gate.admission.enter(self, self.host)
        if goes is not None:
            self._gate.complain(goes, "there are too many: it has not shown to which cluster it belongs", "crowd")
            goes.abort()

    # --- what the server inside says ----------------------------------------------------------------------------------

    def known(self) -> None:
        """The visitor belongs to this cluster: its messages may be large, and it need not make room."""
        self._is_known = True
        self._gate.admission.know(self, self.host)
        self._arm(KNOWN_FIRST_MESSAGE_S)

    def heard(self) -> None:
        """A whole message of it was understood: it may be silent from now on."""
        self._sent_bytes = 0
        self._disarm()

    def ended(self) -> None:
        """The visitor's stream is over: with the next one it begins anew."""
        self._is_known = False
        self._gate.admission.forget(self, self.host)
        self._arm(self._gate.knock_s)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _arm(self, seconds: float) -> None:
        self._disarm()
        if self.transport is not None and not self.transport.is_closing():
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _late(self) -> None:
        if self._joining is None and self._first:
            self._refuse_stranger()
        else:
            _logger.debug("%s: closing the connection: it says nothing", self.address)
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._sent_bytes += len(data)
        if not self._is_known and self._sent_bytes > UNKNOWN_BYTES_MAX:
            reason = f"it sent {self._sent_bytes} bytes and has not shown to which cluster it belongs"
            self._gate.complain(self, reason, "bytes")
            self.abort()
        elif self.other is not None:
            super().data_received(data)
        else:
            self._first += data  # also while it is being joined: uvloop may deliver what it had read before the pause
            if self._joining is None:
                self._judge()

    def _judge(self) -> None:
        shown = self._first[: len(_PREFACE)]
        if not _PREFACE.startswith(shown):
            self._hand_over()
        elif len(shown) == len(_PREFACE):
            assert self.transport is not None
            self.transport.pause_reading()
            self._joining = asyncio.get_running_loop().create_task(self._join())

    def _hand_over(self) -> None:
        """It is the gate's no more, and none of those that the gate counts."""
        if self._gate.stranger is None or self.transport is None:
            self._refuse_stranger()
            return
        self._disarm()
        self._gate.left(self)
        transport, self.transport = self.transport, None
        self._gate.stranger(transport, self._first)

    async def _join(self) -> None:
        inside = _Pipe()
        inside.other = self  # before it connects: the server inside speaks first, perhaps before the await returns
        try:
            await self._gate.connect_inside(self.name, inside)
        except OSError as error:
            self._gate.complain(self, f"cannot reach the gRPC server behind the gate: {error}", "inside")
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

    def complain(self, reason: str, kind: str) -> None:
        """Why the connection is closed."""
        self._gate.complain(self, reason, kind)

    def _refuse_stranger(self) -> None:
        self.complain(f"not a gRPC client: it began with {self._first[:32]!r}", _kind_of(self._first))
        self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._gate.left(self)
        super().connection_lost(exc)
