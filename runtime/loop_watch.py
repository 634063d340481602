"""How long each turn of the event loop takes, and what held the long ones.

A turn is what the loop does between two waits for the network: it handles what was received, then timers, then what was put off by
`call_soon`. Nobody tells a program when uvloop begins one or ends it. So the entrances of work (clients' and other brokers' bytes, visitors, timers,
the quorum's events) each call `begin` unless a turn is open, and `begin` has the turn's end called with what is put off. That is a
flag to look at for an entrance; for a turn, two readings of the clock and a `call_soon`, together 1 us (docs/benchmarks.md).

What has no such entrance (tasks that wake each other), or comes behind the end, a thread finds that looks at the loop's stack now and then
(`stack_watch.py`): from 0.09 s on, and 0.09 s too short at most. A turn over `LATE_S` is logged with what it was doing, as that thread saw it.
So an idle loop is not woken to be watched.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from time import perf_counter

from ottla.runtime.recent import PAGE_S, RecentDurations
from ottla.runtime.seldom import Seldom
from ottla.runtime.stack_watch import INTERVAL_S, StackWatch, Told

LATE_S = 0.1
UNSEEN = "what no other thread could see: a call that let none run, or the process was stopped"

logger = logging.getLogger(__name__)


class LoopWatch:
    """Of one loop, and for its thread. Until `start` and after `stop` it sees nothing and costs nothing."""

    __slots__ = (
        "_asked_s",
        "_call_soon",
        "_end_is_planned",
        "_ended_s",
        "_late_s",
        "_loop",
        "_stacks",
        "_stalls",
        "_timer",
        "_wants_stacks",
        "_work",
        "at_page_turns",
        "began_s",
        "clock",
        "is_open",
        "is_quiet",
        "subject",
        "turns",
    )

    def __init__(self, clock: Callable[[], float] = perf_counter, *, stacks: bool = True) -> None:
        """``stacks``: whether a thread may look at what the loop does; without it, work that has no entrance is not seen."""
        self.clock = clock
        self.is_open = True
        """A turn is open, or nobody watches: no need to `begin`."""
        self.is_quiet = False
        """Late turns are not logged: while a node starts nobody waits for it."""
        self.subject: Told | None = None
        """What is being handled, for the line about a long turn."""
        self.began_s = 0.0
        """When the open turn began, or the last one did; 0 while nobody watches."""
        self.turns = RecentDurations()
        self.at_page_turns: list[Callable[[], None]] = [self.turns.turn_page]
        """Called every `PAGE_S`: for those that keep durations of the last minute by ``clock``."""
        self._ended_s = self._late_s = 0.0
        self._asked_s = inf  # when the thread found the loop at work without a turn; until the loop comes round
        self._end_is_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._work: list[Callable[[], None]] = []
        self._wants_stacks = stacks
        self._stacks: StackWatch | None = None
        self._stalls = Seldom(logger)

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    @property
    def longest_s(self) -> float:
        """Of the turns of the last minute."""
        return self.turns.longest_s

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._call_soon = self._loop.call_soon
        self.is_open = False
        self._timer = self._loop.call_later(PAGE_S, self._turn_pages)
        if self._wants_stacks:
            self._stacks = StackWatch(self.clock, self._busy_since_s, self._ask, lambda: self.subject)
            self._stacks.start()

    def stop(self) -> None:
        self.is_open = True
        self.began_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stacks is not None:
            self._stacks.stop()

    def begin(self) -> None:
        """Work begins. To be called only if no turn `is_open`."""
        self.is_open = True
        self.began_s = self.clock()
        self._plan_end()

    def open(self) -> None:
        """The same for work that is likely all of the turn, and says itself when it is done: that spares the call that is put off, and with it
        a wait for the network of no time at all, several us."""
        self.is_open = True
        self.began_s = self.clock()

    def close(self) -> None:
        """What began with `open` is done. If it left something for the turn's end, the turn goes on until then."""
        if not self._end_is_planned:
            self._close()

    def _plan_end(self) -> None:
        self._end_is_planned = True
        self._call_soon(self._end)

    def at_end(self, work: Callable[[], None]) -> None:
        """Runs ``work`` when the open turn ends, as a part of it: one call that is put off serves all. Only while `is_on`."""
        if not self.is_open:
            self.begin()
        elif not self._end_is_planned:
            self._plan_end()
        self._work.append(work)

    def _end(self) -> None:
        work, self._work = self._work, []
        try:
            for each in work:
                each()
        finally:
            self._end_is_planned = False
            self._close()
            if self._work:  # that the work itself put off
                self.begin()

    def _close(self) -> None:
        self._ended_s = now_s = self.clock()
        held_s = now_s - self.began_s
        if self._timer is None:
            return  # stopped meanwhile
        self.is_open = False
        if self._late_s > held_s:  # this turn is the rest of one that had no entrance
            held_s = self._late_s
        self._late_s = 0.0
        self.turns.record(held_s)
        if held_s > LATE_S:
            self._tell(held_s)

    def _turn_pages(self) -> None:
        self._timer = self._loop.call_later(PAGE_S, self._turn_pages)
        if not self.is_open:
            self.begin()  # what they do is work of a turn, too
        for turn_page in self.at_page_turns:
            turn_page()
        if self.turns.longest_s <= LATE_S:
            self._stalls.forget()

    # Turns without an entrance.

    def _busy_since_s(self) -> float:
        """Since when, at the latest, the loop has not come round; infinity if nobody knows of anything. Called on the other thread."""
        asked_s = max(self._asked_s, self._ended_s)
        return min(self.began_s, asked_s) if self.is_open else asked_s

    def _ask(self, since_s: float) -> None:
        """Called on the other thread, that found the loop at work, or was itself kept from looking, since then."""
        self._asked_s = since_s
        self._loop.call_soon_threadsafe(self._come_round)

    def _come_round(self) -> None:
        late_s = self.clock() - max(self._asked_s, self._ended_s)
        self._asked_s = inf
        if self._timer is None:
            return  # stopped meanwhile
        if self.is_open:
            self._late_s = late_s
        elif late_s > INTERVAL_S:
            self.turns.record(late_s)
            if late_s > LATE_S:
                self._tell(late_s)

    # Turns that are late.

    def _tell(self, held_s: float) -> None:
        if self.is_quiet:
            return
        seen = self._stacks.seen(self.clock() - held_s) if self._stacks is not None else None
        words = "A turn of the event loop took %d ms; it was in %s"
        self._stalls.warn(words, round(held_s * 1000), seen or UNSEEN)
