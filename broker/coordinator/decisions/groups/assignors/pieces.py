"""Long computations of a decider, as generators: what needs more than a piece is gone on with in a later turn of the loop."""

from collections.abc import Generator
from typing import TypeVar

PIECE_STEPS = 2_000
"""A step is what takes a microsecond here."""

Answer = TypeVar("Answer")
InPieces = Generator[None, None, Answer]
"""Yields after each piece but the last, and returns what was computed."""


class Pace:
    """Says when a piece is over. It counts: deciders have no clock, and the same input is to be cut in the same places."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: float = PIECE_STEPS

    def is_over(self, steps: float) -> bool:
        """After so many steps more; another piece begins then."""
        self._left -= steps
        if self._left > 0:
            return False
        self._left = PIECE_STEPS
        return True


def at_once(pieces: InPieces[Answer]) -> Answer:
    """Without a pause, for who has the time."""
    while True:
        try:
            next(pieces)
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer
