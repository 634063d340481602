"""Drives the consensus core: events in, one at a time; what it asks for is performed; ticks when a deadline has come.

Order is everything here. Events are handled one at a time; an event that arises while another is handled waits its turn.
The instructions of an event are performed in order before the next event; what must be durable is, when ``perform`` returns,
except a Sync, whose end is an event of its own.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ottla.quorum.complaints import with_advice
from ottla.quorum.listener import LeaderAndEpoch, QuorumFailure
from ottla.quorum.meters import QuorumMeters
from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.events import Event, Ticked
from ottla.quorum.raft.instructions import Instruction
from ottla.quorum.raft.membership import is_voter_change
from ottla.runtime.clock_loop import loop_ms
from ottla.runtime.loop_watch import LoopWatch

_logger = logging.getLogger(__name__)


class GatheredAppends(Protocol):
    """What the application appended and the core has not been told."""

    def __bool__(self) -> bool: ...

    def drain(self) -> Event: ...

    def follow_leadership(self) -> None:
        """Called after each event."""
        ...


class CoreDriver:
    """One node's core at work, from `start` until `stop`, or until it cannot go on. All methods belong on the event loop."""

    def __init__(
        self, core: RaftCore, on_failure: Callable[[QuorumFailure], None], watch: LoopWatch | None = None
    ) -> None:
        """``on_failure`` is told once, if ever."""
        self.core = core
        self._watch = watch or LoopWatch()
        self.meters = QuorumMeters()
        self._on_failure = on_failure
        self._events: deque[Event] = deque()
        self._handling = False
        self.stopped = True
        self._failure: QuorumFailure | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._step_waiters: list[asyncio.Future[None]] = []

    def start(self, perform: Callable[[Instruction], None], appends: GatheredAppends) -> None:
        self._loop = asyncio.get_running_loop()
        self._perform = perform
        self._appends = appends
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def goes_on(self) -> bool:
        return not self.stopped and self._failure is None

    @property
    def leader(self) -> LeaderAndEpoch:
        state = self.core.state
        return LeaderAndEpoch(state.known_leader_id, state.epoch)

    def now_ms(self) -> int:
        """The time on the core's clock."""
        return loop_ms(self._loop)

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Hands the core one event at a time; those that come up meanwhile follow."""
        if not self.goes_on:
            return
        if not self._watch.is_open:
            self._watch.begin()
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events and self._failure is None:
                event = self._events.popleft()
                if is_voter_change(event) and self._appends:
                    self._step(self._appends.drain())  # what was given offsets comes before the new voter set
                self._step(event)
        except Exception as error:  # noqa: BLE001 - the log's, the disk's or the listener's: what follows relies on it
            self.cannot_go_on(error)
        finally:
            self._handling = False
        self._plan_tick()

    def handle_first(self, event: Event) -> None:
        """Hands the core what an instruction came to, before any event that waits."""
        self._events.appendleft(event)

    def _step(self, event: Event) -> None:
        for instruction in self.core.handle(event, loop_ms(self._loop)):
            self._perform(instruction)
            if self._failure is not None:
                return
        self._appends.follow_leadership()
        self.meters.role_is(self.core.state.role, self.core.state.now_ms)
        waiters, self._step_waiters = self._step_waiters, []
        for waiter in waiters:
            _resolve(waiter)

    async def wait_for_step(self, deadline: float) -> None:
        """Waits until another event was handled, or the loop's time is ``deadline``."""
        waiter = self._loop.create_future()
        self._step_waiters.append(waiter)
        timer = self._loop.call_at(deadline, _resolve, waiter)
        await waiter
        timer.cancel()

    def call_soon(self, work: Callable[[], None]) -> None:
        """Runs ``work`` in another turn of the loop, unless this has ended; what it raises ends this."""

        def run() -> None:
            if not self.goes_on:
                return
            if not self._watch.is_open:
                self._watch.begin()
            try:
                work()
            except Exception as error:  # noqa: BLE001 - as in `handle`
                self.cannot_go_on(error)

        self._loop.call_soon(run)

    # --- the end ------------------------------------------------------------------------------------------------------

    def cannot_go_on(self, error: Exception) -> None:
        self.fail(f"the quorum node cannot go on: {with_advice(error)}", error)

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        """Stops at once: what follows in the list would rely on what failed."""
        failure = QuorumFailure(reason)
        failure.__cause__ = cause
        self._failure = failure
        self._events.clear()
        _logger.error("%s", failure, exc_info=cause)
        self._on_failure(failure)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _plan_tick(self) -> None:
        """One loop timer, for the earliest deadline. A later deadline lets it fire in vain, which costs less than moving it."""
        deadline = self.core.next_deadline_ms()
        if deadline is None or not self.goes_on:
            return
        when = deadline / 1000
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._tick), when

    def _tick(self) -> None:
        self._timer = None
        self.handle(Ticked())


def _resolve(waiter: "asyncio.Future[Any]") -> None:
    if not waiter.done():
        waiter.set_result(None)
