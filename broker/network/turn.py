"""What the connections of one loop leave for the end of its turn, so that each has had something before any has more."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ottla.runtime.loop_watch import LoopWatch

logger = logging.getLogger(__name__)


class Client(Protocol):
    """A connection, as the turn sees it."""

    def resume(self) -> None:
        """Its turn comes again."""

    def abort(self) -> None:
        """Something of ours failed: it is closed, the others go on."""


class Turn:
    """One callback a turn of the loop, however many connections there are, and none where nobody left anything."""

    __slots__ = ("_again", "_call_soon", "_is_planned", "loop_watch")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object] | None = None, loop_watch: LoopWatch | None = None
    ) -> None:
        """``call_soon``: of the running loop by default."""
        self.loop_watch = loop_watch or LoopWatch()
        self._call_soon = call_soon
        self._is_planned = False
        self._again: list[Client] = []

    def again(self, client: Client) -> None:
        """``client`` had its turn, and has more to do. To be said once a turn."""
        self._again.append(client)
        if not self._is_planned:
            self._plan()

    def _plan(self) -> None:
        self._is_planned = True
        (self._call_soon or asyncio.get_running_loop().call_soon)(self._end)

    def _end(self) -> None:
        if not self.loop_watch.is_open:
            self.loop_watch.begin()
        self._is_planned = False
        clients, self._again = self._again, []
        for client in clients:
            try:
                client.resume()
            except Exception:
                logger.exception("A connection could not go on, which is our mistake")
                client.abort()
