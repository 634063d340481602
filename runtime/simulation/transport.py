"""A connected socket with asyncio's transport on top. Behaves as uvloop's does where the two loops differ."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING

from ottla.runtime.simulation.pipe import End, Pipe
from ottla.runtime.simulation.process import Process

if TYPE_CHECKING:
    from ottla.runtime.simulation.loop import SimulationLoop
    from ottla.runtime.simulation.server import SimulatedServer

Address = tuple[str, int]
_HIGH_WATER_BYTES = 64 * 1024
_SPLIT_CHANCE = 0.1
_WRITABLE = (bytes, bytearray, memoryview)


class SimulatedSocket:
    """What `get_extra_info("socket")` answers: addresses, and options that are accepted and ignored."""

    family = 2  # AF_INET
    type = 1  # SOCK_STREAM
    proto = 6  # TCP

    def __init__(self, name: Address, peer: Address | None = None) -> None:
        self._name = name
        self._peer = peer

    def getsockname(self) -> Address:
        return self._name

    def getpeername(self) -> Address:
        if self._peer is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._peer

    def setsockopt(self, *option: object) -> None:
        pass

    def getsockopt(self, *option: object) -> int:
        return 0

    def fileno(self) -> int:
        return -1


class SimulatedTransport(asyncio.Transport):
    """One end of a connection.

    ``received`` is the kernel's buffer: what arrived and was not read, because reading is paused or the program has
    not accepted the connection yet. Data that does not fit the window waits in a queue that is never copied: a caller
    that reuses a buffer it has written corrupts its own stream here, as it would with uvloop.
    """

    def __init__(self, process: Process, number: int, out: Pipe, into: Pipe, name: Address, peer: Address) -> None:
        super().__init__({"socket": SimulatedSocket(name, peer), "sockname": name, "peername": peer})
        self.process = process
        self.number = number
        self.out = out
        self.into = into
        self.context: Context = process.context.copy()
        self.waits_for_room = False
        self.closed = False
        self.server: SimulatedServer | None = None
        self._loop: SimulationLoop = process.loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high_water, self._low_water = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._received: deque[bytes | End] = deque()
        self._reading_paused = False
        self._reading = False
        self._reset = False
        self._closing = False
        self._end_sent = False
        self._eof_written = False
        self._loss_scheduled = False

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """The program has the connection: `connection_made`, then whatever has arrived."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._read()

    # --- reading

    def arrived(self, data: bytes) -> None:
        """From the network, in this end's process."""
        loop = self._loop
        loop.trace.bytes_moved(loop.now_ns, self.process.node.name, self.number, data)
        if self.closed:
            self.out.end(End.RESET)  # nobody reads any more
            return
        if len(data) > 1 and loop.network.draw() < _SPLIT_CHANCE:
            cut = 1 + int(loop.network.draw() * (len(data) - 1))
            self._received += (data[:cut], data[cut:])
        else:
            self._received.append(data)
        self._read()

    def ended(self, end: End) -> None:
        """The other end has, and this one hears of it."""
        if self.closed:
            return
        if end is End.RESET:
            self._reset = True
            self._received.clear()
        else:
            self._received.append(end)
        self._read()

    def _read(self) -> None:
        if self._reading or self._protocol is None:
            return
        self._reading = True
        try:
            while not (self._reading_paused or self._closing):
                if self._reset:
                    self._force_close(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
                elif self._received:
                    self._read_one(self._received.popleft())
                else:
                    return
        except Exception as error:  # noqa: BLE001 - as asyncio does: a failing protocol loses its connection
            context = {"message": "protocol failed", "exception": error, "transport": self, "protocol": self._protocol}
            self._loop.call_exception_handler(context)
            self._force_close(error)
        finally:
            self._reading = False

    def _read_one(self, what: bytes | End) -> None:
        protocol = self._protocol
        if isinstance(what, End):
            assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not protocol.eof_received():
                self.close()
        elif isinstance(protocol, asyncio.BufferedProtocol):
            count = len(what)
            with memoryview(protocol.get_buffer(65536)) as buffer:
                room = len(buffer)
                if room >= count:
                    buffer[:count] = what
                elif room:
                    buffer[:] = what[:room]
                    self._received.appendleft(what[room:])
                    count = room
                else:
                    raise RuntimeError("get_buffer() returned an empty buffer")
            self.into.consumed(count)
            protocol.buffer_updated(count)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            self.into.consumed(len(what))
            protocol.data_received(what)

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            self._loop.call_soon(self._read, context=self.context)

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    # --- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._check_writable()
        if self._write(data):
            self._maybe_pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._check_writable()
        queued = [self._write(data) for data in list_of_data]
        if any(queued):
            self._maybe_pause_writing()

    def _check_writable(self) -> None:
        if self.closed and not self.process.dead:
            raise RuntimeError(f"unable to perform operation on {self!r}; the handler is closed")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")

    def _write(self, data: bytes | bytearray | memoryview) -> bool:
        """Sends what the window takes at once; True when something had to be queued."""
        if not isinstance(data, _WRITABLE):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if not data or self._loss_scheduled or self.process.dead:
            return False
        if self._reset:
            self._force_close(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
            return False
        if not self._queue:
            room = self.out.room()
            if len(data) <= room:
                self.out.send(bytes(data))
                return False
            if room > 0:
                self.out.send(bytes(data[:room]))
                data = memoryview(data)[room:]
        self._queue.append(memoryview(data))
        self._queued_bytes += len(data)
        self.waits_for_room = True
        return True

    def pump(self) -> None:
        """The window has opened: sends what was queued."""
        while self._queue and (room := self.out.room()) > 0:
            data = self._queue.popleft()
            self.out.send(bytes(data[:room]))
            self._queued_bytes -= min(room, len(data))
            if len(data) > room:
                self._queue.appendleft(data[room:])
        self.waits_for_room = bool(self._queue)
        self._maybe_resume_writing()
        if not self._queue:
            if self._closing:
                self._schedule_loss(None)
            elif self._eof_written:
                self._send_end(End.FIN)

    def _maybe_pause_writing(self) -> None:
        if self._queued_bytes > self._high_water and not self._writing_paused and self._protocol is not None:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _maybe_resume_writing(self) -> None:
        if self._writing_paused and self._queued_bytes <= self._low_water and self._protocol is not None:
            self._writing_paused = False
            self._protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = (4 * low if low is not None else _HIGH_WATER_BYTES) if high is None else high
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low
        self._maybe_pause_writing()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not (self._eof_written or self._closing):
            self._eof_written = True
            if not self._queue:
                self._send_end(End.FIN)

    # --- closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._queue:
                self._schedule_loss(None)

    def abort(self) -> None:
        self._force_close(None)

    def is_closing(self) -> bool:
        return self._closing

    def _force_close(self, error: BaseException | None) -> None:
        self._closing = True
        self._queue.clear()
        self._queued_bytes = 0
        self._schedule_loss(error)

    def _schedule_loss(self, error: BaseException | None) -> None:
        if not self._loss_scheduled:
            self._loss_scheduled = True
            self._loop.call_soon(self._lose, error, context=self.context)

    def _lose(self, error: BaseException | None) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)  # type: ignore[arg-type]  # any error, as asyncio hands it on
        finally:
            self._protocol = None
            self.close_socket()

    def die(self, *, quiet: bool) -> None:
        """The process is gone. ``quiet``: its machine too, so the other end hears nothing."""
        self._closing = self._loss_scheduled = True  # what still holds the transport must find it closed
        if quiet:
            self.closed = True
        else:
            self.close_socket()

    def close_socket(self) -> None:
        """What the kernel does when the descriptor goes: unread data turns the polite end into a reset."""
        self.closed = True
        self._send_end(End.RESET if any(isinstance(what, bytes) for what in self._received) else End.FIN)
        self._loop.network.closed(self)
        if self.server is not None:
            self.server.detach()
            self.server = None

    def _send_end(self, end: End) -> None:
        if not self._reset and not (self._end_sent and end is End.FIN):
            self._end_sent = True
            self.out.end(end)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def __repr__(self) -> str:
        state = "closed" if self.closed else "closing" if self._closing else "open"
        return f"<SimulatedTransport {self.number} of {self.process.node.name} {state} queued={self._queued_bytes}>"
