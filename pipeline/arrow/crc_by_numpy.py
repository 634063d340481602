"""CRC-32C with numpy alone, of many batches at once.

A CRC without its inversions is linear: that of two pieces is the first's, moved over the length of the second, xor the
second's. Moving over a fixed length is a matrix over GF(2), and a matrix of 32 rows is two tables of 65,536 entries: so words are
taken all at once, and their remainders joined in pairs, and those in pairs again. Zeros in front change nothing.

Tables are slow, so long rows are folded first. x^290 + x^136 + x^113 + x^107 + x^32 + 1 is a multiple of CRC-32C's polynomial, and squaring
is linear here, so the same holds with x^64 for x: a word may be taken out if it is put, by xor, upon five of the words that follow.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_MASK = 0xFFFFFFFF
_WORD_BYTES = 8
_HALF = np.uint32(16)
_LOW = np.uint32(0xFFFF)
_SLAB_BYTES = 1 << 20
"""What is taken at once: more falls out of the processor's cache."""

_LANE_BYTES = 1 << 14
"""A row of more than four of these is so many rows, side by side."""

_FOLDED = 290
_ONTO = (154, 177, 183, 258, 290)

Words = NDArray[np.uint32]
Slab = NDArray[np.uint8]
"""Rows of whole words, each with zeros in front of its bytes."""
Matrix = tuple[int, ...]
"""What becomes of each of the 32 bits."""


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The CRC of ``data``, going on from ``value``."""
    octets = np.frombuffer(data, np.uint8)
    for start in range(0, len(octets), _SLAB_BYTES):
        piece = octets[start : start + _SLAB_BYTES]
        if len(piece) < 4:  # too short to begin with a state
            value = _slowly(piece.tobytes(), value)
            continue
        row = np.zeros((1, _width(len(piece))), np.uint8)
        row[0, -len(piece) :] = piece
        first = row.shape[1] - len(piece)
        row[0, first : first + 4] ^= np.frombuffer((value ^ _MASK).to_bytes(4, "little"), np.uint8)
        value = int(_remainders(row)[0]) ^ _MASK
    return value


def crcs(data: memoryview, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The CRCs of several pieces, each of 4 bytes at least."""
    octets = np.frombuffer(data, np.uint8)
    found = [0] * len(starts)
    for rows in _alike(starts, ends):
        if ends[rows[0]] - starts[rows[0]] > _SLAB_BYTES:
            found[rows[0]] = crc32c(data[starts[rows[0]] : ends[rows[0]]])
            continue
        width = _width(max(ends[row] - starts[row] for row in rows))
        slab = np.zeros((len(rows), width), np.uint8)
        for number, row in enumerate(rows):
            slab[number, width - ends[row] + starts[row] :] = octets[starts[row] : ends[row]]
        firsts = np.array([width - ends[row] + starts[row] for row in rows])
        slab[np.arange(len(rows))[:, None], firsts[:, None] + np.arange(4)] ^= np.uint8(0xFF)
        for row, crc in zip(rows, _remainders(slab).tolist(), strict=True):
            found[row] = crc ^ _MASK
    return found


def _width(size_bytes: int) -> int:
    """In whole words; whole lanes, where it is more than one."""
    unit = _LANE_BYTES if size_bytes > 4 * _LANE_BYTES else _WORD_BYTES
    return -(-size_bytes // unit) * unit


def _alike(starts: Sequence[int], ends: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of pieces of about one size, as many as make a slab."""
    order = sorted(range(len(starts)), key=lambda row: ends[row] - starts[row])
    rows: list[int] = []
    for row in order:
        size = ends[row] - starts[row]
        if rows and (size * (len(rows) + 1) > _SLAB_BYTES or size > 64 + 5 * (ends[rows[0]] - starts[rows[0]]) // 4):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def _slowly(piece: bytes, value: int) -> int:
    state = value ^ _MASK
    for octet in piece:
        state = _slowly_moved(state ^ octet, 1)
    return state ^ _MASK


def _remainders(slab: Slab) -> Words:
    """The CRC of each row, without inversions. The slab is used up."""
    if slab.shape[1] > 4 * _LANE_BYTES:
        lanes = _remainders(slab.reshape(-1, _LANE_BYTES))
        return _joined(lanes.reshape(len(slab), -1), _LANE_BYTES)
    words = slab.view(np.uint64)
    start, end = 0, words.shape[1] - _FOLDED
    while start < end:
        taken = words[:, start : min(start + _ONTO[0], end)]
        for distance in _ONTO:
            onto = words[:, start + distance : start + distance + taken.shape[1]]
            np.bitwise_xor(onto, taken, out=onto)
        start += taken.shape[1]
    return _by_tables(np.ascontiguousarray(words[:, max(end, 0) :]))


def _by_tables(words: NDArray[np.uint64]) -> Words:
    quarters = words.view("<u2").reshape(*words.shape, 4)
    tables = _word_tables()
    found: Words = tables[0][quarters[..., 0]]
    for number in range(1, 4):
        found ^= tables[number][quarters[..., number]]
    return _joined(found, _WORD_BYTES)


def _joined(found: Words, moved_bytes: int) -> Words:
    """The remainders of rows, from those of their parts, which have ``moved_bytes`` each (a power of two)."""
    while found.shape[1] > 1:
        if found.shape[1] % 2:
            found = np.concatenate((np.zeros((len(found), 1), np.uint32), found), axis=1)
        low, high = _moving(moved_bytes)
        left = found[:, 0::2]
        found = low[left & _LOW] ^ high[left >> _HALF] ^ found[:, 1::2]
        moved_bytes *= 2
    return found[:, 0]


@cache
def _moving(size_bytes: int) -> tuple[Words, Words]:
    """The tables that move a state over ``size_bytes`` (a power of two) of zeros, for its lower and its upper half."""
    matrix = _matrix(size_bytes)
    return _table(matrix[:16]), _table(matrix[16:])


@cache
def _matrix(size_bytes: int) -> Matrix:
    if size_bytes == 1:
        return tuple(_slowly_moved(1 << bit, 1) for bit in range(32))
    half = _matrix(size_bytes // 2)
    return tuple(_apply(half, image) for image in half)


def _slowly_moved(state: int, size_bytes: int) -> int:
    for _ in range(8 * size_bytes):
        state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return state


def _apply(matrix: Matrix, state: int) -> int:
    moved = 0
    for bit, image in enumerate(matrix):
        if state >> bit & 1:
            moved ^= image
    return moved


def _table(images: Matrix) -> Words:
    """What becomes of each 16 bits, of which each has its image."""
    table = np.zeros(1, np.uint32)
    for image in images:
        table = np.concatenate((table, table ^ np.uint32(image)))
    return table


@cache
def _word_tables() -> list[Words]:
    """For each two bytes of a word of eight, what they leave at its end."""
    tables = []
    for number in range(4):
        # Two bytes in front of others: the state that they are, moved over themselves and what follows.
        matrix = _matrix_of(_WORD_BYTES - 2 * number)
        tables.append(_table(matrix[:16]))
    return tables


def _matrix_of(size_bytes: int) -> Matrix:
    """Moving over any number of bytes."""
    matrix = tuple(1 << bit for bit in range(32))
    for bit in range(size_bytes.bit_length()):
        if size_bytes >> bit & 1:
            matrix = tuple(_apply(_matrix(1 << bit), image) for image in matrix)
    return matrix
