"""One client's connection: bytes to requests, responses to bytes, in order and within bounds.

All frames of one read are handled inside the read callback, and what they answered is written with one call (`answers.py`). A
request that must wait is parked by its handler; the answers behind it wait with it. No task, no copy of a payload,
no queue without a bound: when one is full the socket is not read (`reading.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import TypeVar, cast

from ottla.broker.network.answers import Answers
from ottla.broker.network.beside import Beside
from ottla.broker.network.counters import ListenerCounters
from ottla.broker.network.gone import GONE
from ottla.broker.network.limits import FRAME_BYTES_MIN, ConnectionLimits
from ottla.broker.network.principal import ANONYMOUS
from ottla.broker.network.reading import BESIDE, HELD, MUTED, STARVED, TURN, Reading
from ottla.broker.network.receive import CHUNK_BYTES, ReceiveBuffer, ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Handler, RouteTable
from ottla.broker.network.sender import NOBODY, sender_of
from ottla.broker.network.turn import FRAMES_PER_TURN, Turn
from ottla.broker.wire.apis import APIS, PRODUCE
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import skip_tags
from ottla.runtime.settings.security import PLAINTEXT

logger = logging.getLogger(__name__)

T = TypeVar("T")

_read_size: Callable[[memoryview, int], tuple[int]] = Struct(">i").unpack_from
LARGE_BYTES = 16 << 10
"""What a request or the answers of a connection may hold while memory is short."""
COUNTED_BYTES = 1 << 10
"""From where on a request counts while it waits. Not the fetches of a session, nor most others: to count one costs 0.5 us."""
DECODED = 8
"""So many times its size a request takes while it waits, decoded."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection; runs on uvloop, asyncio and the simulated loop alike."""

    __slots__ = (
        "_answers",
        "_beside",
        "_budget",
        "_closed",
        "_in_flight_max",
        "_inbox",
        "_is_put_off",
        "_limits",
        "_loop_watch",
        "_muted_until_s",
        "_on_lost",
        "_on_made",
        "_queue",
        "_reading",
        "_received_s",
        "_routes",
        "_sender",
        "_targets",
        "_transport",
        "_turn",
        "_unasked_bytes_max",
        "_unmuting",
        "_write_buffer_bytes",
        "active",
        "comes_first",
        "counters",
        "deliver",
        "hold",
        "host",
        "listener_name",
        "peer",
        "principal",
        "security_protocol",
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
        security_protocol: str = PLAINTEXT,
        beside: Beside | None = None,
    ) -> None:
        self.counters = counters or ListenerCounters(listener_name)
        self.listener_name = listener_name
        self.peer = "a client"
        # Who is at the other end, as authorizers and quotas ask: known by the time the first request comes.
        self.principal = (
            ANONYMOUS  # until there is SASL; it does not change when a client says anew who it is (KIP-368)
        )
        self.host = ""
        self.security_protocol = security_protocol
        self.active = True  # read since the idle sweep looked last
        self.comes_first = False  # another broker is at the other end
        self._is_put_off = False
        self._routes = routes
        self._targets = routes.targets
        self._limits = limits
        self._unasked_bytes_max = min(limits.request_bytes_max, limits.plain_bytes_max)
        self._in_flight_max = limits.in_flight_max
        self._write_buffer_bytes = limits.write_buffer_bytes
        self._on_made = on_made
        self._on_lost = on_lost
        self._inbox = ReceiveBuffer(pool)
        self._budget = pool.budget
        self._turn = turn or Turn()
        self._beside = beside or Beside()
        self._loop_watch = self._turn.loop_watch
        self._reading = Reading()
        self._answers = answers = Answers(self, limits, self._budget, self._reading, self._turn, self.counters)
        self._queue = answers.queue
        self.deliver = answers.deliver  # what requests call: no way round
        self.hold = answers.hold
        self._unmuting: asyncio.TimerHandle | None = None
        self._muted_until_s = 0.0
        self._received_s = 0.0  # when the last bytes came, or the first of those that were put off
        self._closed = False
        self._sender = NOBODY

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = cast(asyncio.Transport, transport)
        self._reading.begin(transport)
        self._answers.begin(transport)
        self._transport.set_write_buffer_limits(high=self._write_buffer_bytes)
        address = transport.get_extra_info("peername")
        if address:
            self.host = address[0]
            self.peer = f"{address[0]}:{address[1]}"
        if self._on_made is not None:
            self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.space()

    def buffer_updated(self, nbytes: int) -> None:
        inbox = self._inbox
        inbox.end = end = inbox.end + nbytes
        is_full = end == inbox.given
        self.counters.bytes_in += nbytes
        self.active = True
        watch, turn = self._loop_watch, self._turn
        is_alone = False
        if not watch.is_open:
            # Nobody else came since it came last, so there is most likely nobody to gather answers with.
            is_alone = self._answers.go_at_once = turn.latest is self
            if is_alone:
                watch.open()
            else:
                watch.begin()
        turn.latest = self
        if not self._is_put_off:
            self._received_s = watch.began_s
        try:
            if end > CHUNK_BYTES and inbox.is_at_limit and not self.comes_first:
                self._wait_at_the_end()
            elif self.comes_first or not turn.is_over():
                self._handle_frames()
            else:
                self._put_off()
            if is_full:
                self.resume_soon()  # there may be more, of which libuv would read 31 times as much: the others come first
        finally:
            if is_alone:
                self._answers.go_at_once = False
                watch.close()

    def eof_received(self) -> None:
        """Closes: nobody reads the answers to what is parked. What is answered leaves before, and what was put off is answered."""
        if self._is_put_off:
            self.resume()
        self._answers.flush()

    def pause_writing(self) -> None:
        self._answers.pause()

    def resume_writing(self) -> None:
        self._answers.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            logger.debug("Connection from %s broke: %s", self.peer, exc)
        self._drop_requests()
        self._inbox.release()
        self._budget.forget(self)
        self._transport = GONE
        self._reading.end()
        self._answers.end()
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
    def is_muted(self) -> bool:
        """Its silence is our doing."""
        return self._unmuting is not None

    @property
    def memory_is_short(self) -> bool:
        """Whether a large answer can wait for better times."""
        return self._budget.is_full

    def stuck_at(self) -> tuple[str, int] | None:
        """What the client keeps us from giving back, if it is more than a little, and how far it is; the same twice means that
        it did nothing in between. None where it is not the client that is waited for."""
        untaken = self._answers.untaken_bytes
        if untaken is not None:
            return "does not take its answers", untaken
        partial = self._inbox.end - self._inbox.start
        if partial > LARGE_BYTES and not self._reading.stopped and not self._is_put_off:
            return "does not send the rest of its request", partial
        return None

    def room(self, *, in_any_case: bool = False) -> None:
        """There may be room for more of the request."""
        if self._closed:
            return
        self._reading.lift(STARVED)
        if in_any_case and not self._reading.stopped & HELD:
            self._inbox.settle(self._needed(), in_any_case=True)
            self._reading.go_on()
        else:
            self.resume_soon()

    def resume_soon(self) -> None:
        """Not from here: this may run inside a handler of the very frames that would be handled next."""
        if not self._reading.stopped & TURN:
            self._reading.stop(TURN)
            self._wait_in_line()

    def resume(self, frames: int = FRAMES_PER_TURN) -> None:
        """Its turn comes again: first what was read before, then the socket."""
        reading = self._reading
        reading.lift(TURN)
        self._is_put_off = False
        if self._closed:
            return
        if not reading.stopped & HELD:
            self._handle_frames(frames)
        reading.go_on()

    def _put_off(self) -> None:
        """The turn is over: what came is put away, and more may come behind it while there is room."""
        self._inbox.keep()
        self._wait_in_line()

    def _wait_at_the_end(self) -> None:
        """A large request is whole, or has no room: to write it down takes milliseconds, which the small ones of this turn do not wait."""
        self._reading.stop(TURN)
        if not self._is_put_off:
            self._is_put_off = True
            self._turn.at_the_end(self)

    def _wait_in_line(self) -> None:
        if not self._is_put_off:
            self._is_put_off = True
            self._turn.again(self)

    def read_beside(self, request: RequestContext, read: Callable[[], T], then: Callable[[T], None]) -> None:
        """``read`` runs on a thread, ``then`` goes on with the request here. What comes behind it is not taken before."""
        self._reading.stop(BESIDE)
        self._beside.run(request.api_key, read, partial(self._handle_read, request, then))

    def write_beside(
        self, request: RequestContext, write: Callable[[], T], then: Callable[[Callable[[], T]], None]
    ) -> None:
        """``write`` runs on a thread, ``then`` is given its result here. Nothing is written for who is gone."""
        if not self._closed:
            self._beside.run(request.api_key, write, then)

    def mute(self, ms: int) -> None:
        """For so long nothing of the client is taken: no bytes, and no request that came already. Answers leave. Of two the later end counts."""
        if ms <= 0 or self._closed:
            return
        loop = asyncio.get_running_loop()
        end_s = loop.time() + ms / 1000
        if self._unmuting is not None:
            if self._muted_until_s >= end_s:
                return
            self._unmuting.cancel()
        self._muted_until_s = end_s
        self._reading.stop(MUTED)
        self._unmuting = loop.call_at(end_s, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        self._reading.lift(MUTED)
        self.active = True  # its silence was our doing: its idle time begins now
        self.resume_soon()

    def count_error(self, api_key: int, code: int, count: int = 1) -> None:
        """A client is told this error, so many times."""
        self.counters.count_error(api_key, code, count)

    def count_follower(self, request: RequestContext) -> None:
        """A fetch is not a consumer's."""
        self.counters.times.of_follower(self._answers.times.of(request))

    def fail(self, reason: str) -> None:
        """Closes with one log line. What was answered before still leaves."""
        if not self._closed:
            logger.warning("Closed the connection from %s: %s", self.peer, reason)
            self.close()

    def close(self) -> None:
        """Drops what waits, writes what is answered, closes."""
        if not self._closed:
            self._answers.flush()
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

    def _handle_frames(self, left: int = FRAMES_PER_TURN) -> None:
        inbox, reading, answers = self._inbox, self._reading, self._answers
        view, start, end = inbox.view, inbox.start, inbox.end
        needed = 4
        unseen = False  # whether there are whole frames, perhaps
        answers.is_gathering = True
        while end - start >= 4 and not reading.stopped & HELD:
            if not left or answers.out_bytes > self._write_buffer_bytes:
                self.resume_soon()
                unseen = True
                break
            size = _read_size(view, start)[0]
            needed = size + 4
            if not FRAME_BYTES_MIN <= size <= self._unasked_bytes_max:
                refusal = self._limits.refusal(size, bytes(view[start : min(start + 6, end)]))
                if refusal is not None:
                    self.fail(refusal)
                    break
            if start + needed > end:
                break
            frame = view[start + 4 : start + needed]
            start += needed
            needed = 4
            left -= 1
            self._handle_frame(frame)
        answers.flush_large()
        inbox.start = end if self._closed else start
        if unseen or reading.stopped & HELD:
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
        header, position, known_length, known, client_id = self._sender
        try:
            key, version, correlation_id, length, client = header.unpack_from(frame)
        except StructError:
            self._handle_new_sender(frame)
            return
        if length != known_length or client != known:
            self._handle_new_sender(frame)
            return
        target = self._targets.get(key << 16 | version & 0xFFFF)  # target_key(), without the call
        if target is None:
            self._handle_unsupported(key, version, correlation_id, frame)
            return
        handler, tagged_request, tagged_response, tally = target
        tally.count = count = tally.count + 1
        if tagged_request:
            try:
                first = frame[position]
                position = skip_tags(frame, position + 1, first) if first else position + 1
            except (WireError, IndexError) as error:
                self.fail(f"bytes are not a request header: {error}")
                return
        request = RequestContext(self, key, version, correlation_id, client_id, tagged_response)
        if count != tally.timed_at:
            self._call(handler, request, frame, position)
            return
        clock = self._loop_watch.clock
        timed = tally.time(self._received_s, clock())
        self._answers.times.begin(request, timed)
        self._call(handler, request, frame, position)
        timed.left_s = clock()

    def _call(self, handler: Handler, request: RequestContext, frame: memoryview, position: int) -> None:
        queue, key, watch = self._queue, request.api_key, self._loop_watch
        queue.append(request)
        watch.subject = request  # this and its end: some 0.03 us
        try:
            handler(request, frame, position)
        except Exception as error:  # noqa: BLE001 - told there
            _give_up(request, error)
        watch.subject = None
        if len(queue) >= self._in_flight_max:
            self._answers.adjust()
        if len(frame) > COUNTED_BYTES and request.response is None:
            if key == PRODUCE:
                self._answers.wait_for_replicas(request, len(frame))
            else:
                self._answers.hold_request(request, DECODED * len(frame))

    def _handle_read(self, request: RequestContext, then: Callable[[T], None], read: Callable[[], T]) -> None:
        """A large request is read; what waited behind it is taken in its turn."""
        if self._closed:
            return
        self._reading.lift(BESIDE)
        watch = self._loop_watch
        if not watch.is_open:
            watch.begin()
        watch.subject = request
        try:
            then(read())
        except Exception as error:  # noqa: BLE001 - told there
            _give_up(request, error)
            error.__traceback__ = None  # it knows our callers, and they what knows the error
        watch.subject = None
        self.resume_soon()

    def _handle_new_sender(self, frame: memoryview) -> None:
        """The first request, or one whose client id is not that of the request before."""
        try:
            self._sender = sender_of(frame)
        except WireError as error:
            self.fail(str(error))
            return
        self._handle_frame(frame)

    def _handle_unsupported(self, key: int, version: int, correlation_id: int, frame: memoryview) -> None:
        fallback = self._routes.unsupported(key)
        if fallback is None:
            name = APIS[key].name if key in APIS else "unknown"
            self.fail(f"API key {key} ({name}) version {version} is not supported here")
            return
        sender = self._sender
        request = RequestContext(self, key, version, correlation_id, sender.client_id, False)
        self._call(fallback, request, frame, sender.header_bytes)

    def _drop_requests(self) -> None:
        self._closed = True
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        self._answers.drop()


def _give_up(request: RequestContext, error: Exception) -> None:
    if isinstance(error, WireError):
        request.fail_connection(f"malformed request: {error}")
    else:
        logger.error("A handler failed, which is our mistake", exc_info=error)
        request.fail_connection("its request could not be handled")
