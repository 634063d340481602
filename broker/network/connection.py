"""One client's connection: bytes to requests, responses to bytes, in order and within bounds.

All frames of one read are handled inside the read callback, and what they answered is written with one call. A
request that must wait is parked by its handler; the answers behind it wait with it. No task, no copy of a payload,
no queue without a bound: when one is full the socket is not read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import cast

from ottla.broker.network.counters import ListenerCounters
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.reading import BOUND, STARVED, TURN, Reading
from ottla.broker.network.receive import ReceiveBuffer, ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Handler, RouteTable
from ottla.broker.network.turn import Turn
from ottla.broker.wire.apis import APIS, PRODUCE
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.headers import read_request_header
from ottla.broker.wire.primitives import skip_tags
from ottla.runtime.disk import Buffer

logger = logging.getLogger(__name__)

_read_size: Callable[[memoryview, int], tuple[int]] = Struct(">i").unpack_from
_HEADER = Struct(">hhih")  # API key, version, correlation id, length of the client id
_FRAME_BYTES_MIN = _HEADER.size
_JOIN_BYTES_MAX = 16 << 10
"""Up to this size the answers of one read are joined: copying them costs less than a gathered write."""
FRAMES_PER_TURN = 64
"""Then others have theirs: somebody who sends thousands of requests at once must not be answered all of them before anybody else."""
LARGE_BYTES = 16 << 10
"""What a request or the answers of a connection may hold while memory is short; also from where on a waiting request counts."""
DECODED = 8
"""So many times its size a request takes while it waits, decoded."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection; runs on uvloop, asyncio and the simulated loop alike."""

    __slots__ = (
        "_budget",
        "_client_id",
        "_client_length",
        "_client_raw",
        "_closed",
        "_handling",
        "_header",
        "_header_bytes",
        "_held_bytes",
        "_in_flight_max",
        "_inbox",
        "_large",
        "_loop_watch",
        "_on_lost",
        "_on_made",
        "_out",
        "_out_bytes",
        "_queue",
        "_reading",
        "_request_bytes_max",
        "_routes",
        "_targets",
        "_transport",
        "_turn",
        "_unsent_bytes",
        "_unsent_bytes_max",
        "_write_buffer_bytes",
        "_write_paused",
        "active",
        "counters",
        "listener_name",
        "peer",
    )

    def __init__(
        self,
        routes: RouteTable,
        pool: ReceivePool,
        limits: ConnectionLimits,
        listener_name: str = "PLAINTEXT",
        on_made: "Callable[[Connection], None] | None" = None,
        on_lost: "Callable[[Connection], None] | None" = None,
        counters: ListenerCounters | None = None,
        turn: Turn | None = None,
    ) -> None:
        self.counters = counters or ListenerCounters(listener_name)
        self.listener_name = listener_name
        self.peer = "a client"
        self.active = True  # read since the idle sweep looked last
        self._routes = routes
        self._targets = routes.targets
        self._request_bytes_max = limits.request_bytes_max
        self._in_flight_max = limits.in_flight_max
        self._unsent_bytes_max = limits.unsent_bytes_max
        self._write_buffer_bytes = limits.write_buffer_bytes
        self._on_made = on_made
        self._on_lost = on_lost
        self._inbox = ReceiveBuffer(pool)
        self._budget = pool.budget
        self._turn = turn or Turn()
        self._loop_watch = self._turn.loop_watch
        self._queue: deque[RequestContext] = deque()
        self._out: list[Buffer] = []
        self._out_bytes = self._held_bytes = self._unsent_bytes = 0
        self._large: dict[RequestContext, int] = {}  # that wait, and what they hold
        self._handling = self._write_paused = self._closed = False
        self._reading = Reading()
        self._client_id: str | None = None
        self._learn_client(-1, b"")

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reading.begin(transport)
        self._transport.set_write_buffer_limits(high=self._write_buffer_bytes)
        address = transport.get_extra_info("peername")
        if address:
            self.peer = f"{address[0]}:{address[1]}"
        if self._on_made is not None:
            self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.space()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._loop_watch.is_open:
            self._loop_watch.begin()
        inbox = self._inbox
        inbox.end = end = inbox.end + nbytes
        is_full = end == inbox.given
        self.counters.bytes_in += nbytes
        self.active = True
        self._handle_frames()
        if is_full:
            self._resume_soon()  # there may be more, of which libuv would read 31 times as much: the others come first

    def eof_received(self) -> None:
        """Closes: nobody reads the answers to what is parked."""

    def pause_writing(self) -> None:
        self._write_paused = True
        self._count_unsent()
        self._adjust()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._count_unsent()
        self._adjust()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            logger.debug("Connection from %s broke: %s", self.peer, exc)
        self._drop_requests()
        self._inbox.release()
        self._budget.forget(self)
        self._budget.add(-self._unsent_bytes)
        self._unsent_bytes = 0
        if self._on_lost is not None:
            self._on_lost(self)

    # What requests and the server call.

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer, or for an earlier one's."""
        return len(self._queue)

    @property
    def owned_bytes(self) -> int:
        return self._inbox.owned_bytes

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def memory_is_short(self) -> bool:
        """Whether a large answer can wait for better times."""
        return self._budget.is_full

    def stuck_at(self) -> tuple[str, int] | None:
        """What the client keeps us from giving back, if it is more than a little, and how far it is; the same twice means that
        it did nothing in between. None where it is not the client that is waited for."""
        if self._write_paused:
            return "does not take its answers", self._transport.get_write_buffer_size()
        partial = self._inbox.end - self._inbox.start
        if partial > LARGE_BYTES and not self._reading.stopped:
            return "does not send the rest of its request", partial
        return None

    def room(self, *, in_any_case: bool = False) -> None:
        """There may be room for more of the request."""
        if self._closed:
            return
        self._reading.lift(STARVED)
        if in_any_case and not self._reading.stopped & BOUND:
            self._inbox.settle(self._needed(), in_any_case=True)
            self._reading.go_on()
        else:
            self._resume_soon()

    def resume(self) -> None:
        """Its turn comes again: first what was read before, then the socket."""
        reading = self._reading
        reading.lift(TURN)
        if self._closed:
            return
        if not reading.stopped & BOUND:
            self._handle_frames()
        reading.go_on()

    def deliver(self, request: RequestContext, response: list[Buffer]) -> None:
        """A request has its response: writes it, and those that waited behind it, unless it waits itself."""
        queue = self._queue
        if self._closed:
            return
        if queue[0] is not request:
            self.hold(request.response_bytes)
            return
        queue.popleft()
        if self._large:
            self.hold(-self._large.pop(request, 0))
        self._out += response
        self._out_bytes += request.response_bytes
        if queue and queue[0].response is not None:
            self._collect()
        if not self._handling:
            self._flush()
            if self._reading.stopped & BOUND:
                self._adjust()

    def hold(self, size: int) -> None:
        """Counts bytes that a waiting request keeps (negative: gives back): with too many the socket is not read."""
        if self._closed:
            return  # all that it held is given back
        self._held_bytes += size
        self._budget.add(size)
        if self._held_bytes > self._unsent_bytes_max or self._reading.stopped & BOUND:
            self._adjust()

    def count_error(self, api_key: int, code: int) -> None:
        """A client is told this error."""
        self.counters.count_error(api_key, code)

    def gather(self) -> None:
        """What is answered until this turn of the loop ends leaves with one write: for answers that come due together."""
        if not self._handling and not self._closed:
            self._handling = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def fail(self, reason: str) -> None:
        """Closes with one log line. What was answered before still leaves."""
        if not self._closed:
            logger.warning("Closed the connection from %s: %s", self.peer, reason)
            self.close()

    def close(self) -> None:
        """Drops what waits, writes what is answered, closes."""
        if not self._closed:
            self._flush()
            self._drop_requests()
            self._transport.close()

    def abort(self) -> None:
        """Closes at once; unsent bytes are lost."""
        self._drop_requests()
        self._transport.abort()

    def trim(self) -> None:
        """Gives back memory that a quiet connection does not need."""
        self._inbox.trim()

    # Frames.

    def _handle_frames(self) -> None:
        inbox, reading = self._inbox, self._reading
        view, start, end = inbox.view, inbox.start, inbox.end
        needed = 4
        left = FRAMES_PER_TURN
        unseen = False  # whether there are whole frames, perhaps
        self._handling = True
        while end - start >= 4 and not reading.stopped & BOUND:
            if not left or self._out_bytes > self._write_buffer_bytes:
                self._resume_soon()
                unseen = True
                break
            size = _read_size(view, start)[0]
            needed = size + 4
            if not _FRAME_BYTES_MIN <= size <= self._request_bytes_max:
                self.fail(_bad_size(size, self._request_bytes_max, bytes(view[start : start + 4])))
                break
            if start + needed > end:
                break
            frame = view[start + 4 : start + needed]
            start += needed
            needed = 4
            left -= 1
            self._handle_frame(frame)
        self._handling = False
        if self._out:
            self._flush()
        inbox.start = end if self._closed else start
        if unseen or reading.stopped & BOUND:
            inbox.keep()
        elif inbox.settle(needed):
            if reading.stopped & STARVED:
                reading.lift(STARVED)
                self._budget.forget(self)
        else:
            reading.stop(STARVED)
            self._budget.wait(self)

    def _needed(self) -> int:
        """The size of the frame that began to come."""
        inbox = self._inbox
        known = inbox.end - inbox.start >= 4
        return 4 + _read_size(inbox.view, inbox.start)[0] if known else 4

    def _handle_frame(self, frame: memoryview) -> None:
        try:
            key, version, correlation_id, length, client = self._header.unpack_from(frame)
        except StructError:
            self._handle_new_client(frame)
            return
        if length != self._client_length or client != self._client_raw:
            self._handle_new_client(frame)
            return
        target = self._targets.get(key << 16 | version & 0xFFFF)  # target_key(), without the call
        if target is None:
            self._handle_unsupported(key, version, correlation_id, frame)
            return
        handler, tagged_request, tagged_response, tally = target
        tally.count += 1
        position = self._header_bytes
        if tagged_request:
            try:
                first = frame[position]
                position = skip_tags(frame, position + 1, first) if first else position + 1
            except (WireError, IndexError) as error:
                self.fail(f"bytes are not a request header: {error}")
                return
        request = RequestContext(self, key, version, correlation_id, self._client_id, tagged_response)
        self._call(handler, request, frame, position)

    def _call(self, handler: Handler, request: RequestContext, frame: memoryview, position: int) -> None:
        queue, key = self._queue, request.api_key
        queue.append(request)
        try:
            handler(request, frame, position)
        except WireError as error:
            request.fail_connection(f"malformed request: {error}")
        except Exception:
            logger.exception("A handler failed, which is our mistake")
            request.fail_connection("its request could not be handled")
        if len(queue) >= self._in_flight_max:
            self._adjust()
        if len(frame) > LARGE_BYTES and key != PRODUCE and request.response is None and not self._closed:
            self._large[request] = DECODED * len(frame)
            self.hold(DECODED * len(frame))

    def _handle_new_client(self, frame: memoryview) -> None:
        """The first request, or one whose client id is not that of the request before."""
        try:
            *_, client_id, _ = read_request_header(frame, 0)
        except WireError as error:
            self.fail(str(error))
            return
        self._client_id = client_id
        length = _HEADER.unpack_from(frame)[3]
        self._learn_client(length, bytes(frame[_HEADER.size : _HEADER.size + max(length, 0)]))
        self._handle_frame(frame)

    def _learn_client(self, length: int, raw: bytes) -> None:
        # The client id is the same in every request, so one unpack reads the whole header and compares it.
        self._client_length, self._client_raw = length, raw
        self._header = Struct(f">hhih{len(raw)}s")
        self._header_bytes = self._header.size

    def _handle_unsupported(self, key: int, version: int, correlation_id: int, frame: memoryview) -> None:
        fallback = self._routes.unsupported(key)
        if fallback is None:
            name = APIS[key].name if key in APIS else "unknown"
            self.fail(f"API key {key} ({name}) version {version} is not supported here")
            return
        request = RequestContext(self, key, version, correlation_id, self._client_id, False)
        self._call(fallback, request, frame, self._header_bytes)

    # Bounds.

    def _adjust(self) -> None:
        """Stops taking requests when a bound is reached, and starts again well below it."""
        if self._closed:
            return
        waiting, held, reading = len(self._queue), self._held_bytes, self._reading
        if not reading.stopped & BOUND:
            if self._write_paused or waiting >= self._in_flight_max or held > self._unsent_bytes_max:
                reading.stop(BOUND)
        elif not self._write_paused and waiting <= self._in_flight_max // 2 and held <= self._unsent_bytes_max // 2:
            reading.lift(BOUND)
            self._resume_soon()

    def _resume_soon(self) -> None:
        """Not from here: this may run inside a handler of the very frames that would be handled next."""
        if not self._reading.stopped & TURN:
            self._reading.stop(TURN)
            self._turn.again(self)

    # The way out.

    def _end_turn(self) -> None:
        self._handling = False
        self._flush()
        if self._reading.stopped & BOUND:
            self._adjust()

    def _flush(self) -> None:
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if not out or self._transport.is_closing():
            return
        if self._write_paused:
            self._count_unsent(size)
        self.counters.bytes_out += size
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOIN_BYTES_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    def _count_unsent(self, more: int = 0) -> None:
        """What the client does not take; not counted below the transport's high-water mark."""
        before, self._unsent_bytes = self._unsent_bytes, 0
        if self._write_paused:
            self._unsent_bytes = self._transport.get_write_buffer_size() + more
        self._budget.add(self._unsent_bytes - before)

    def _collect(self) -> None:
        """The answers that waited behind the one that just went out."""
        queue, total = self._queue, 0
        while queue and (later := queue[0].response) is not None:
            request = queue.popleft()
            total += request.response_bytes
            self._out += later
            if self._large:
                self.hold(-self._large.pop(request, 0))
        self._out_bytes += total
        self._held_bytes -= total
        self._budget.add(-total)

    def _drop_requests(self) -> None:
        self._closed = True
        self._reading.stop(BOUND)
        self._budget.add(-self._held_bytes)
        self._held_bytes = 0
        self._large.clear()
        queue = self._queue
        while queue:
            queue.popleft().drop()


def _bad_size(size: int, size_max: int, first: bytes) -> str:
    if first[:2] == b"\x16\x03":
        return "it speaks TLS, and this listener does not"
    if first in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return "it speaks HTTP, not Kafka's protocol"
    if size > size_max:
        return f"a request of {size} bytes is over socket.request.max.bytes={size_max}"
    return f"a request of {size} bytes cannot be"
