"""Many texts at once that differ in their numbers only: one matrix of bytes, a row a text, whose digits come from a table.

Numbers that have fewer digits than there is room leave bytes that are not kept, so a text looks as any encoder of JSON would write it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.pipeline.fleet.numbers import Integers

Bytes = NDArray[np.uint8]

ROWS_AT_ONCE = 4096  # the matrix and what is kept of it stay in the processor's cache

_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)
_FOURS = (
    (np.arange(10_000)[:, None] // np.array([1000, 100, 10, 1]) % 10 + ord("0"))
    .astype(np.uint8)
    .view(np.uint32)
    .ravel()
)


class Number(NamedTuple):
    """A field of at most so many digits, of which the last ``decimals`` stand behind the point; ``is_full``: it has all of them, always."""

    digits: int
    decimals: int = 0
    is_full: bool = False

    @property
    def width(self) -> int:
        return self.digits + (self.decimals > 0)


class Letters(NamedTuple):
    """A field of fixed width: one of these, by number."""

    choices: Bytes


Part = bytes | Number | Letters


def digits_of(values: Integers, digits: int) -> Bytes:
    """The last digits of each value, with leading zeros."""
    groups = -(-digits // 4)
    text = np.empty((len(values), groups), np.uint32)  # four digits each
    for group in reversed(range(groups)):
        above = values // 10_000  # divmod takes five times as long
        text[:, group] = _FOURS[values - above * 10_000]
        values = above
    return text.view(np.uint8)[:, groups * 4 - digits :]


def texts(parts: list[Part], columns: list[Integers], rows: int) -> tuple[Bytes, Integers]:
    """All texts, one behind the other, and where each begins (and the last one ends). A column for each part that is not fixed."""
    blank = np.frombuffer(b"".join(map(_blank, parts)), np.uint8)
    starts = np.zeros(rows + 1, np.int64)
    pieces = []
    for first in range(0, rows, ROWS_AT_ONCE):
        some = [column[first : first + ROWS_AT_ONCE] for column in columns]
        matrix = np.tile(blank, (min(rows - first, ROWS_AT_ONCE), 1))
        kept: NDArray[np.bool_] = np.ones(matrix.shape, np.bool_)
        _fill(parts, some, matrix, kept)
        starts[first + 1 : first + 1 + len(matrix)] = kept.sum(1)
        pieces.append(matrix[kept])
    np.cumsum(starts, out=starts)
    return np.concatenate(pieces) if pieces else np.empty(0, np.uint8), starts


def _fill(parts: list[Part], columns: list[Integers], matrix: Bytes, kept: NDArray[np.bool_]) -> None:
    place, values = 0, iter(columns)
    for part in parts:
        width = _width(part)
        if isinstance(part, Number):
            _put(part, next(values), matrix[:, place : place + width], kept[:, place : place + width])
        elif isinstance(part, Letters):
            matrix[:, place : place + width] = part.choices[next(values)]
        place += width


def _width(part: Part) -> int:
    if isinstance(part, Number):
        return part.width
    return part.choices.shape[1] if isinstance(part, Letters) else len(part)


def _blank(part: Part) -> bytes:
    return part if isinstance(part, bytes) else b"." * _width(part)


def _put(part: Number, values: Integers, matrix: Bytes, kept: NDArray[np.bool_]) -> None:
    whole = part.digits - part.decimals
    digits = digits_of(values, part.digits)
    matrix[:, :whole] = digits[:, :whole]
    if part.decimals:
        matrix[:, whole + 1 :] = digits[:, whole:]
    if not part.is_full:
        missing = whole - 1 - np.searchsorted(_POWERS[: whole - 1], values // 10**part.decimals, "right")
        kept[:, :whole] = (np.arange(whole) >= np.arange(whole)[:, None])[missing]
