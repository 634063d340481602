"""What a connection owes its client: the requests it took, in order, and the answers that go to the socket.

Small answers wait for the end of the loop's turn: all of one connection's leave with one write, and the client is woken once. Large
ones go at once, so that a turn never holds them all; so do those of a client that is alone, which spares a lone request 5 us. When too much waits the socket is not read (`reading.py`).
"""

import asyncio
from collections import deque
from typing import Protocol, cast

from ottla.broker.network.budget import MemoryBudget
from ottla.broker.network.counters import ListenerCounters
from ottla.broker.network.gone import GONE
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.reading import BOUND, Reading
from ottla.broker.network.request import RequestContext
from ottla.broker.network.times import AnswerTimes
from ottla.broker.network.turn import Abortable, Turn
from ottla.runtime.disk import Buffer

_JOIN_BYTES_MAX = 16 << 10
"""Up to this size the answers of a turn are joined: copying them costs less than a gathered write. Larger ones do not wait for its end."""


_NONE: dict[RequestContext, int] = {}
"""Stays empty: what most connections have, so that it is in the processor's cache when a thousand of them come."""


class Owner(Abortable, Protocol):
    """The connection."""

    def resume_soon(self) -> None:
        """A bound is kept again: requests may be taken."""


class Answers:
    """A request costs one `deliver`; only the first answer of a turn tells the turn."""

    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_ahead_bytes_max",
        "_budget",
        "_closed",
        "_counters",
        "_held_bytes",
        "_in_flight_max",
        "_is_leaving",
        "_is_write_paused",
        "_large",
        "_out",
        "_owner",
        "_reading",
        "_transport",
        "_turn",
        "_unsent_bytes",
        "_unsent_bytes_max",
        "go_at_once",
        "is_gathering",
        "out_bytes",
        "queue",
        "times",
    )

    def __init__(
        self,
        owner: Owner,
        limits: ConnectionLimits,
        budget: MemoryBudget,
        reading: Reading,
        turn: Turn,
        counters: ListenerCounters,
    ) -> None:
        self._owner: Owner = owner
        self._in_flight_max = limits.in_flight_max
        self._ahead_bytes_max = limits.ahead_bytes_max
        self._unsent_bytes_max = limits.unsent_bytes_max
        self._budget = budget
        self._reading = reading
        self._turn = turn
        self._counters = counters
        self.times = AnswerTimes(turn.loop_watch.clock)
        self.queue: deque[RequestContext] = deque()
        self._out: list[Buffer] = []
        self.out_bytes = self._held_bytes = self._unsent_bytes = 0
        self._ahead = _NONE  # produce requests that wait, and their bytes
        self._ahead_bytes = 0
        self._large = _NONE  # that wait, and what they hold
        self.is_gathering = False  # the connection takes requests, and flushes what is large afterwards
        self.go_at_once = False  # nobody else is here in this turn: answers to what is taken now leave with it
        self._is_leaving = self._is_write_paused = self._closed = False

    def begin(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = cast(asyncio.WriteTransport, transport)

    @property
    def untaken_bytes(self) -> int | None:
        """What the client does not take; None if it takes what comes."""
        return self._transport.get_write_buffer_size() if self._is_write_paused else None

    # From requests.

    def deliver(self, request: RequestContext, response: list[Buffer]) -> None:
        """A request has its response, which leaves with those that waited behind it, unless it waits itself."""
        queue, times = self.queue, self.times
        if self._closed:
            return
        if times.waiting:
            times.answered(request)
        if queue[0] is not request:
            self.hold(request.response_bytes)
            return
        queue.popleft()
        if times.waiting:
            times.leaves(request, response)
        if self._large or self._ahead:
            self._let_go(request)
        self._out += response
        self.out_bytes += request.response_bytes
        if queue and queue[0].response is not None:
            self._collect()
        if not self._is_leaving and not self.go_at_once:
            self._is_leaving = True
            self._turn.answer(self)
        if self.out_bytes > _JOIN_BYTES_MAX and not self.is_gathering:
            self.flush()
        if self._reading.stopped & BOUND:
            self.adjust()

    def hold(self, size: int) -> None:
        """Counts bytes that a waiting request keeps (negative: gives back): with too many the socket is not read."""
        if self._closed:
            return  # all that it held is given back
        self._held_bytes += size
        self._budget.add(size)
        if self._held_bytes > self._unsent_bytes_max or self._reading.stopped & BOUND:
            self.adjust()

    def hold_request(self, request: RequestContext, size: int) -> None:
        """The same until it is answered."""
        if not self._closed:
            if self._large is _NONE:
                self._large = {}
            self._large[request] = size
            self.hold(size)

    def wait_for_replicas(self, request: RequestContext, size: int) -> None:
        """A produce request of that size is not answered yet. Its bytes are in the log or held by who has them."""
        if self._ahead is _NONE:
            self._ahead = {}
        self._ahead[request] = size
        self._ahead_bytes += size
        if self._ahead_bytes > self._ahead_bytes_max:
            self.adjust()

    def _let_go(self, request: RequestContext) -> None:
        """Of what it held while it waited."""
        self.hold(-self._large.pop(request, 0))
        self._ahead_bytes -= self._ahead.pop(request, 0)

    def _collect(self) -> None:
        """The answers that waited behind the one that just went out."""
        queue, total = self.queue, 0
        while queue and (later := queue[0].response) is not None:
            request = queue.popleft()
            if self.times.waiting:
                self.times.leaves(request, later)
            total += request.response_bytes
            self._out += later
            if self._large or self._ahead:
                self._let_go(request)
        self.out_bytes += total
        self._held_bytes -= total
        self._budget.add(-total)

    # To the socket.

    def leave(self) -> None:
        """The turn ends."""
        self._is_leaving = False
        if self._out:
            self.flush()

    def flush_large(self) -> None:
        """The connection took its requests of this turn."""
        self.is_gathering = False
        if self.out_bytes > _JOIN_BYTES_MAX or self.go_at_once:
            self.flush()

    def flush(self) -> None:
        out, size = self._out, self.out_bytes
        self._out, self.out_bytes = [], 0
        if not out or self._transport.is_closing():
            return
        if self._is_write_paused:
            self._count_unsent(size)
        self._counters.bytes_out += size
        times = self.times
        if times.leaving:
            times.writes()
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOIN_BYTES_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        if times.leaving and not self._is_write_paused:
            times.sent()

    def pause(self) -> None:
        """The client does not take what it is sent."""
        self._is_write_paused = True
        self._count_unsent()
        self.adjust()

    def resume(self) -> None:
        self._is_write_paused = False
        if self.times.leaving:
            self.times.sent()
        self._count_unsent()
        self.adjust()

    def _count_unsent(self, more: int = 0) -> None:
        """What the client does not take; not counted below the transport's high-water mark."""
        before, self._unsent_bytes = self._unsent_bytes, 0
        if self._is_write_paused:
            self._unsent_bytes = self._transport.get_write_buffer_size() + more
        self._budget.add(self._unsent_bytes - before)

    # Bounds.

    def adjust(self) -> None:
        """Stops taking requests when a bound is reached, and starts again well below it."""
        if self._closed:
            return
        if not self._reading.stopped & BOUND:
            if self._is_write_paused or not self._is_within(1):
                self._reading.stop(BOUND)
        elif not self._is_write_paused and self._is_within(2):
            self._reading.lift(BOUND)
            self._owner.resume_soon()

    def _is_within(self, part: int) -> bool:
        """Whether what waits is no more than one ``part``-th of what may."""
        if len(self.queue) * part > self._in_flight_max - (part == 1):  # at the bound itself it stops
            return False
        return self._held_bytes <= self._unsent_bytes_max // part and self._ahead_bytes <= self._ahead_bytes_max // part

    # The end.

    def drop(self) -> None:
        """Nobody waits for them any more."""
        self._closed = True
        self._reading.stop(BOUND)
        self._budget.add(-self._held_bytes)
        self._held_bytes = 0
        self._large.clear()
        self._ahead.clear()
        self.times.drop()
        queue = self.queue
        while queue:
            queue.popleft().drop()

    def end(self) -> None:
        """The socket is gone."""
        self._budget.add(-self._unsent_bytes)
        self._unsent_bytes = 0
        self._owner = self._transport = GONE

    def abort(self) -> None:
        """For the turn: what fails here costs this connection."""
        self._owner.abort()
