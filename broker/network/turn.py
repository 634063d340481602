"""What the connections of one loop leave for the end of its turn, so that each has had something before any has more.

And who waits when there is more than a turn should take: clients. Past `TURN_S` what comes from them is only put away, and looked at in the
order of coming, so much a turn again. What comes from brokers (fetches of followers, all of a listener of their own) is handled as it is read. So
a follower waits for twice `TURN_S` of the clients' work, plus what one of them may take, however many they are. (What the quorum
and the controller hear has no part in this: it is handled as it is read.)

A large request takes some milliseconds to write down, and nobody is served meanwhile. So it is the last of its turn, one a turn, and those who
came with little go between.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.runtime.loop_watch import LoopWatch

FRAMES_PER_TURN = 64
"""Of one connection; then others have theirs: somebody who sends thousands of requests at once must not be answered all of them before anybody else."""
FRAMES_PER_TURN_MIN = 5
"""However many wait: as many as a producer has under way, who would otherwise wait twice."""
ROUND_S = 0.1
"""What all that wait have of the loop, about, before the first of them has more: who comes behind 500 of them, each with 50 requests, does not wait for all
25,000. With more than `FRAMES_PER_TURN_MIN` of a client at a time its requests cost less: to go from one to the next is 10 us, a small produce 11."""
TURN_S = 0.02
"""Some large requests, or several hundred small ones. To put one away and find it again costs 1.5 us and cold caches (a third of a small request's
CPU with a thousand clients, where this was 4 ms), so it is for crowds only."""

logger = logging.getLogger(__name__)


class Abortable(Protocol):
    def abort(self) -> None:
        """Something of ours failed: it is closed, the others go on."""


class Client(Abortable, Protocol):
    """A connection, as the turn sees it."""

    def resume(self, frames: int = FRAMES_PER_TURN) -> None:
        """Its turn comes again, for so many requests at most."""


class Leaving(Abortable, Protocol):
    """A connection's answers, as the turn sees them."""

    def leave(self) -> None:
        """They go to the socket."""


class Turn:
    """One callback a turn of the loop, however many connections there are, and none where nobody left anything: answers leave first,
    then go on those who had their turn."""

    __slots__ = (
        "_again",
        "_answers",
        "_call_soon",
        "_frames_each",
        "_is_behind",
        "_is_planned",
        "_large",
        "latest",
        "loop_watch",
    )

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object] | None = None, loop_watch: LoopWatch | None = None
    ) -> None:
        """``call_soon``: of the running loop by default."""
        self.loop_watch = loop_watch or LoopWatch()
        self._call_soon = call_soon
        self.latest: Client | None = None
        """Who sent something last."""
        self._is_planned = False
        self._is_behind = False  # some that wait had no turn yet
        self._frames_each = FRAMES_PER_TURN  # of those that wait
        self._again: deque[Client] = deque()
        self._large: deque[Client] = deque()
        self._answers: list[Leaving] = []

    def answer(self, answers: Leaving) -> None:
        """``answers`` has something for its client. To be said once a turn."""
        self._answers.append(answers)
        if not self._is_planned:
            self._plan()

    def again(self, client: Client) -> None:
        """``client`` had its turn, and has more to do. To be said once a turn."""
        self._again.append(client)
        if not self._is_planned:
            self._plan()

    def at_the_end(self, client: Client) -> None:
        """``client`` has a large request, whole. To be said once until it is resumed."""
        self._large.append(client)
        if not self._is_planned:
            self._plan()

    def is_over(self) -> bool:
        """Whether clients had what a turn gives them, or others wait since an earlier one. Some 0.1 us; never where nobody watches the loop."""
        watch = self.loop_watch
        began_s = watch.began_s
        return self._is_behind or (began_s > 0 and watch.clock() - began_s > TURN_S)

    def _plan(self) -> None:
        self._is_planned = True
        if self.loop_watch.is_on:
            self.loop_watch.at_end(self._end)
        else:
            (self._call_soon or asyncio.get_running_loop().call_soon)(self._end)

    def _end(self) -> None:
        self._send()
        self._go_on()
        self._send()  # what those who waited were answered does not wait again
        if self._large:
            self._resume(self._large.popleft())
            self._send()
        self._is_planned = False
        if self._again or self._answers or self._large:
            self._plan()

    def _send(self) -> None:
        leaving, self._answers = self._answers, []
        for answers in leaving:
            try:
                answers.leave()
            except Exception:  # noqa: BLE001 - told below; the others go on
                _give_up(answers)

    def _go_on(self) -> None:
        """One at least, and each once: who has still more is behind all others."""
        again, watch = self._again, self.loop_watch
        is_timed = watch.began_s > 0
        began_s = watch.clock() if is_timed else 0.0
        waiting = left = len(again)
        while left:
            self._resume(again.popleft(), self._frames_each)
            left -= 1
            if is_timed and watch.clock() - began_s > TURN_S:
                break
        self._is_behind = left > 0
        if is_timed and waiting:
            self._share((watch.clock() - began_s) / (waiting - left) * waiting)

    def _share(self, round_s: float) -> None:
        """``round_s``: what a round would take of all that wait, as the last of them did. Each gets so much less, or more, the next turn."""
        wanted = self._frames_each * ROUND_S / round_s if round_s > 0 else FRAMES_PER_TURN
        self._frames_each = int(max(FRAMES_PER_TURN_MIN, min(FRAMES_PER_TURN, wanted)))

    @staticmethod
    def _resume(client: Client, frames: int = FRAMES_PER_TURN) -> None:
        try:
            client.resume(frames)
        except Exception:  # noqa: BLE001 - told below; the others go on
            _give_up(client)


def _give_up(who: Abortable) -> None:
    logger.exception("A connection could not go on, which is our mistake")
    who.abort()
