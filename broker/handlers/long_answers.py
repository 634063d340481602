"""Answers that take longer than anybody may hold the loop: put together piece by piece, one piece a turn for all of them."""

import asyncio
import logging
from collections.abc import Generator

from ottla.broker.network.request import RequestContext
from ottla.runtime.disk import Buffer

HELD_BYTES = 64 << 10
"""What one that goes on holds, roughly: a client that asks for many at once is not read (`answers.py`)."""

logger = logging.getLogger(__name__)

Pieces = Generator[None, None, list[Buffer]]
"""Does a millisecond's work at most between two yields, and returns the answer."""


class LongAnswers:
    """Each has its first piece at once, and most have no other. Those that go on do so in the order of their coming."""

    def __init__(self) -> None:
        self._waiting: dict[RequestContext, Pieces] = {}
        self._is_planned = False  # also while all who waited are gone: never twice a turn

    def give(self, request: RequestContext, pieces: Pieces) -> None:
        if _is_done(request, pieces):
            return
        self._waiting[request] = pieces
        request.connection.hold(HELD_BYTES)
        request.on_close(lambda: self._forget(request))
        self._plan()

    def _forget(self, request: RequestContext) -> None:
        pieces = self._waiting.pop(request, None)
        if pieces is not None:
            pieces.close()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        if not self._waiting:
            return
        request, pieces = next(iter(self._waiting.items()))
        try:
            done = _is_done(request, pieces)
        except Exception:
            logger.exception("An answer could not be put together, which is our mistake")
            request.fail_connection("its request could not be handled")
            done = True
        if done:
            self._waiting.pop(request, None)
            request.connection.hold(-HELD_BYTES)
        if self._waiting:
            self._plan()


def _is_done(request: RequestContext, pieces: Pieces) -> bool:
    try:
        next(pieces)
    except StopIteration as done:
        request.respond(done.value)
        return True
    return False
