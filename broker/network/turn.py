"""What the connections of one loop leave for the end of its turn, so that each has had something before any has more."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ottla.runtime.loop_watch import LoopWatch

logger = logging.getLogger(__name__)


class Abortable(Protocol):
    def abort(self) -> None:
        """Something of ours failed: it is closed, the others go on."""


class Client(Abortable, Protocol):
    """A connection, as the turn sees it."""

    def resume(self) -> None:
        """Its turn comes again."""


class Leaving(Abortable, Protocol):
    """A connection's answers, as the turn sees them."""

    def leave(self) -> None:
        """They go to the socket."""


class Turn:
    """One callback a turn of the loop, however many connections there are, and none where nobody left anything: answers leave first,
    then go on those who had their turn."""

    __slots__ = ("_again", "_answers", "_call_soon", "_is_planned", "loop_watch")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object] | None = None, loop_watch: LoopWatch | None = None
    ) -> None:
        """``call_soon``: of the running loop by default."""
        self.loop_watch = loop_watch or LoopWatch()
        self._call_soon = call_soon
        self._is_planned = False
        self._again: list[Client] = []
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

    def _plan(self) -> None:
        self._is_planned = True
        if self.loop_watch.is_on:
            self.loop_watch.at_end(self._end)
        else:
            (self._call_soon or asyncio.get_running_loop().call_soon)(self._end)

    def _end(self) -> None:
        self._is_planned = False
        leaving, self._answers = self._answers, []
        clients, self._again = self._again, []
        for answers in leaving:
            try:
                answers.leave()
            except Exception:  # noqa: BLE001 - told below; the others go on
                _give_up(answers)
        for client in clients:
            try:
                client.resume()
            except Exception:  # noqa: BLE001 - told below; the others go on
                _give_up(client)


def _give_up(who: Abortable) -> None:
    logger.exception("A connection could not go on, which is our mistake")
    who.abort()
