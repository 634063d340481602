"""A connection to another broker: Kafka requests out, answers in, in order.

The loop's clients wait for what is taken in here, so a connection is read once a turn, `TURN_BYTES` at most, and goes on with a large answer in the
next turn when it took in as much of it.
"""

import asyncio
import logging
import select
from collections import deque
from collections.abc import Callable, Iterator
from mmap import mmap
from struct import Struct
from typing import cast

from ottla.broker.wire.errors import WireError
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.runtime.timers import LoopTimers, Timer

FIRST_BUFFER_BYTES = 256 << 10
"""Anonymous memory, of which only the pages count that were written: most links only ever hear short answers."""

TURN_BYTES = 256 << 10
ANSWER_BYTES_MAX = 512 << 20
"""More than any response.max.bytes plus the largest batch: a frame that says more is not from a broker."""

LOOKS = 10
"""How often a stall is looked for within its time, at the beats that other work has too: it is noticed at most a tenth early, never late."""

CLOSED = "the other end closed the connection"

_SIZE = Struct(">i")

OnAnswer = Callable[[memoryview, int], Iterator[int] | None]
"""Called with the frame and the position of the body in it; the frame is gone afterwards. An iterator takes it in piece by piece, and says how
many bytes each had; then the frame is gone when it ends."""

logger = logging.getLogger(__name__)


class LinkConnection(asyncio.BufferedProtocol):
    """``on_up`` and ``on_lost`` are each called once; after ``close`` neither is. ``on_lost`` is told why, and whether it was
    the other end that closed the connection. ``stall_ms``: an owed answer of which not a byte came for so long breaks it."""

    __slots__ = (
        "_answers",
        "_buffer",
        "_client_id",
        "_correlation_id",
        "_end",
        "_given",
        "_large_came",
        "_loop_watch",
        "_on_lost",
        "_on_up",
        "_poll",
        "_rest",
        "_silent_looks",
        "_stall_ms",
        "_start",
        "_timers",
        "_transport",
        "_view",
        "_watchdog",
        "closed",
    )

    def __init__(
        self,
        client_id: str,
        timers: LoopTimers,
        stall_ms: int,
        on_up: Callable[[], None],
        on_lost: Callable[[str, bool], None],
    ) -> None:
        self._client_id = client_id
        self._timers = timers
        self._loop_watch = timers.watch
        self._stall_ms = stall_ms
        self._on_up = on_up
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self._buffer: bytearray | mmap = mmap(-1, FIRST_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = self._given = 0
        self._rest: Iterator[int] | None = None  # of the answer that ends at ``_start``
        self._large_came = False
        self._answers: deque[tuple[int, int, int, OnAnswer]] = deque()
        self._correlation_id = 0
        self._silent_looks = 0
        self._watchdog: Timer | None = None
        self.closed = False

    @property
    def owed(self) -> int:
        """Requests without an answer."""
        return len(self._answers)

    def request(self, key: int, version: int, body: bytes, on_answer: OnAnswer) -> None:
        """Sends a request; its answer comes after those of the requests before. Only while the connection is up."""
        assert self._transport is not None, "requests go out once the connection is made"
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(key, version, correlation_id, self._client_id)
        self._answers.append((key, version, correlation_id, on_answer))
        self._transport.write(_SIZE.pack(len(header) + len(body)) + header + body)
        if self._watchdog is None:
            self._watch()

    def has_ended(self) -> bool:
        """Whether the other end closed the connection, also when the loop has not come to read of it yet."""
        return self.closed or (self._poll is not None and bool(self._poll.poll(0)))

    def close(self) -> None:
        """No callback comes any more."""
        self.closed = True
        self._rest = None
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._transport is not None:
            self._transport.abort()

    def break_off(self, reason: str, *, by_peer: bool = False) -> None:
        """Ends the connection, and tells."""
        if not self.closed:
            self.close()
            self._on_lost(reason, by_peer)

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self._transport.abort()
            return
        socket = transport.get_extra_info("socket")
        if socket is not None and socket.fileno() >= 0:  # not a simulated one
            self._poll = select.poll()
            self._poll.register(socket.fileno(), select.POLLRDHUP)
        self._on_up()

    def get_buffer(self, sizehint: int) -> memoryview:
        self._given = min(len(self._buffer), self._end + TURN_BYTES)
        return self._view[self._end : self._given]

    def buffer_updated(self, nbytes: int) -> None:
        self._silent_looks = 0
        self._end += nbytes
        was_filled = self._end == self._given
        if self._take_in() and not (was_filled or self.closed):
            return
        if not self.closed:
            assert self._transport is not None, "it was made"
            self._transport.pause_reading()  # libuv would read on while there is more
            asyncio.get_running_loop().call_soon(self._go_on)

    def eof_received(self) -> None:
        """A turn before `connection_lost`: whoever asks for the other broker now is to hear that it is gone."""
        self.break_off(CLOSED, by_peer=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.break_off(str(exc) if exc is not None else CLOSED, by_peer=True)

    # Frames.

    def _go_on(self) -> None:
        """The next turn."""
        if self.closed:
            return
        if self._rest is not None and not self._take_in():
            asyncio.get_running_loop().call_soon(self._go_on)
        elif not self.closed:
            assert self._transport is not None, "it was made"
            self._transport.resume_reading()

    def _take_in(self) -> bool:
        """False: so much was taken in that the rest of it waits for the next turn."""
        if not self._loop_watch.is_open:
            self._loop_watch.begin()
        try:
            return self._take_rest(TURN_BYTES) and self._take_frames()
        except WireError as error:
            self.break_off(str(error))
        except Exception:
            logger.exception("An answer could not be taken in, which is our mistake")
            self.break_off("what it sent could not be taken in")
        return True

    def _take_rest(self, left: int) -> bool:
        for size in self._rest or ():
            left -= size
            if left <= 0 or self.closed:
                return self.closed
        self._rest = None
        return True

    def _take_frames(self) -> bool:
        start, needed = self._start, 4
        while self._end - start >= 4 and not self.closed:
            size = _SIZE.unpack_from(self._view, start)[0]
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise WireError(f"an answer of {size} bytes cannot be")
            needed = size + 4
            if start + needed > self._end:
                break
            self._start = start = start + needed
            self._rest = self._take_answer(self._view[start - needed + 4 : start])
            if self._rest is not None and not self._take_rest(TURN_BYTES):
                return False
            needed = 4
        self._settle(start, needed)
        return True

    def _take_answer(self, frame: memoryview) -> Iterator[int] | None:
        if not self._answers:
            raise WireError("an answer to nothing")
        key, version, correlation_id, on_answer = self._answers.popleft()
        answered, position = read_response_header(frame, 0, key, version)
        if answered != correlation_id:
            raise WireError(f"an answer to request {answered} where {correlation_id} is due")
        return on_answer(frame, position)

    def _settle(self, start: int, needed: int) -> None:
        """Moves the piece of a frame that is left to the front, into a buffer where the whole frame fits."""
        rest = self._end - start
        if needed > FIRST_BUFFER_BYTES:
            self._large_came = True
        if needed > len(self._buffer):
            buffer = bytearray(needed)
            buffer[:rest] = self._view[start : self._end]
            self._buffer, self._view = buffer, memoryview(buffer)
        elif start and rest:
            self._view[:rest] = bytes(self._view[start : self._end])
        self._start, self._end = 0, rest

    # Stalls.

    def _watch(self) -> None:
        self._silent_looks = 0
        self._watchdog = self._timers.call_at_beat(max(1, self._stall_ms // LOOKS), self._look)

    def _look(self) -> None:
        self._watchdog = None
        if not self._answers:
            return  # the next request watches again
        if self._rest is not None:
            self._silent_looks = -1  # nothing is read meanwhile
        if self._silent_looks >= LOOKS - 1:
            self.break_off(f"no answer for {self._stall_ms} ms")
            return
        self._silent_looks += 1
        self._shrink()
        self._watchdog = self._timers.call_at_beat(max(1, self._stall_ms // LOOKS), self._look)

    def _shrink(self) -> None:
        """Gives back the large buffer of a time of catching up."""
        if not self._large_came and self._end == 0 and len(self._buffer) > FIRST_BUFFER_BYTES:
            self._buffer = mmap(-1, FIRST_BUFFER_BYTES)
            self._view = memoryview(self._buffer)
        self._large_came = False
