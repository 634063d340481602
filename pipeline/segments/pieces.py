"""A stretch of a segment file, piece by piece: never more in memory than a piece, or a batch that is larger."""

import os
from collections.abc import Iterator
from typing import NamedTuple

PIECE_BYTES = 8 << 20


class Piece(NamedTuple):
    """Bytes of a file from ``position`` on; ``last`` when nothing comes behind them."""

    position: int
    data: memoryview
    last: bool


class Pieces:
    """Reads [start, end) of a file. Who takes a piece says with `next_at` where the next one is to begin."""

    def __init__(self, path: str, start: int, end: int, piece_bytes: int = PIECE_BYTES) -> None:
        self._path = path
        self.position = start
        self.end = end
        self._piece_bytes = piece_bytes
        self._want = piece_bytes

    def next_at(self, position: int, needed_bytes: int = 0) -> None:
        """The next piece begins there and has ``needed_bytes`` at least, where the file has them."""
        self.position = position
        self._want = max(self._piece_bytes, needed_bytes)

    def __iter__(self) -> Iterator[Piece]:
        """OSError passes through."""
        # Reading, not mapping: a file that is cut while it is mapped kills the process.
        file = os.open(self._path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            memory = bytearray()
            while self.position < self.end:
                size = min(self._want, self.end - self.position)
                if len(memory) < size:
                    memory = bytearray(size)
                view = memoryview(memory)[:size]
                got = _fill(file, view, self.position)
                if not got:
                    return
                yield Piece(self.position, view[:got], got < size or self.position + got >= self.end)
        finally:
            os.close(file)


def _fill(file: int, view: memoryview, position: int) -> int:
    """Fills ``view`` as far as the file goes."""
    got = 0
    while got < len(view):
        more = os.preadv(file, [view[got:]], position + got)
        if not more:
            break
        got += more
    return got
