"""Requests that wait: Produce for the in-sync replicas or the disk, DeleteRecords for every replica, Fetch for data.

A parked request is a small object in the waiter lists of the partitions it waits on, and one timer in the timing wheel. It
is completed exactly once: by the partitions, by the timer, or dropped when its connection is gone. No task, no future.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.broker.replication.decisions.fetch_session import FetchSession
from ottla.runtime.errors import ErrorCode
from ottla.runtime.timers import Timer

Schedule = Callable[[int, Callable[[], None]], Timer]
"""``LoopTimers.call_later_ms``."""


class WakeQueue:
    """Fetches to look at again, once each, when the events at hand are handled.

    A burst of appends so becomes one answer to each follower, however many batches and partitions it touched.
    """

    __slots__ = ("_loop", "_ready")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: dict[FetchSession, None] = {}

    def wake(self, session: FetchSession) -> None:
        if not self._ready:
            self._loop.call_soon(self._run)
        self._ready[session] = None

    def _run(self) -> None:
        ready, self._ready = self._ready, {}
        for session in ready:
            parked = session.parked
            if parked is not None:
                parked.look_again()


class ParkedRequest:
    """A request that waits for partitions: a Produce until its records are everywhere (acks=all) or on stable storage (acks=1 where
    topics sync first), a DeleteRecords until they are gone everywhere.

    ``respond(errors)`` gets one error code for each awaited partition, in the order of the ``await_`` calls.
    """

    __slots__ = ("_pending", "_respond", "_timer", "done", "errors")

    def __init__(self, respond: Callable[[Sequence[int]], None]) -> None:
        self._respond = respond
        self._pending = 0
        self._timer: Timer | None = None
        self.errors: list[int] = []
        self.done = False

    def add(self) -> int:
        """One more partition to wait for; its place in ``errors``."""
        self._pending += 1
        self.errors.append(ErrorCode.REQUEST_TIMED_OUT)
        return len(self.errors) - 1

    def park(self, schedule: Schedule, timeout_ms: int) -> None:
        """Waits from now on, at most so long. Nothing to wait for answers at once."""
        if self._pending == 0:
            self._complete()
        elif not self.done:
            self._timer = schedule(timeout_ms, self._complete)

    def settle(self, place: int, error: int) -> None:
        """A partition has its outcome. The last one completes the request; later calls mean nothing."""
        if self.done:
            return
        self.errors[place] = error
        self._pending -= 1
        if self._pending == 0 and self._timer is not None:
            self._complete()

    def drop(self) -> None:
        """The connection is gone: nobody waits for the answer any more."""
        self._finish()

    def _complete(self) -> None:
        if not self.done:
            respond = self._respond
            self._finish()
            respond(self.errors)

    def _finish(self) -> None:
        self.done = True
        self._respond = _tell_nobody  # who is told knows this object: a cycle for each request otherwise
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _tell_nobody(errors: Sequence[int]) -> None:
    """Of a request that is over."""


class Waiter(Protocol):
    """What waits for a partition to get somewhere."""

    done: bool

    def settle(self, place: int, error: int) -> None:
        """How it ended, for what the waiter calls ``place``. Means nothing once it is done."""
        ...


class OffsetWaiters(list[tuple[int, Waiter, int]]):
    """What waits for a partition to get to an offset, first come first. Appends come in order, so the list is sorted; only
    the repetition of an older batch may wait a little longer. (No deque: an empty one has 700 bytes, and most are empty.)"""

    __slots__ = ()

    def wait_for(self, offset: int, waiter: Waiter, place: int) -> None:
        """Adds one. Forgets those that timed out or whose connection went, so that a partition that gets nowhere gathers
        none."""
        if self and self[0][1].done:
            self._take(0)
        self.append((offset, waiter, place))

    def reached(self, offset: int, outcome: int) -> None:
        """Settles who waits for ``offset`` or an earlier one."""
        for _, waiter, place in self._take(offset):
            waiter.settle(place, outcome)

    def _take(self, offset: int) -> list[tuple[int, Waiter, int]]:
        """Removes the first ones, as far as they wait for ``offset`` at most or for nothing any more."""
        count = 0
        for waits_for, waiter, _ in self:
            if waits_for > offset and not waiter.done:
                break
            count += 1
        taken = self[:count]
        del self[:count]
        return taken
