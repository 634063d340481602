"""CRC-32C with numpy alone: words are taken all at once, and their remainders joined in pairs, and those in pairs again.

A CRC without its inversions is linear: that of two pieces is the first's, moved over the length of the second, xor the
second's. Moving over a fixed length is a matrix over GF(2), and a matrix of 32 rows is two tables of 65,536 entries. Zeros in front
change nothing, so a piece without a partner gets one of zeros before it.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_MASK = 0xFFFFFFFF
_WORD_BYTES = 8
_HALF = np.uint32(16)
_LOW = np.uint32(0xFFFF)
_PIECE_BYTES = 1 << 20
"""What is taken at once: larger pieces fall out of the processor's cache."""

Words = NDArray[np.uint32]
Matrix = tuple[int, ...]
"""What becomes of each of the 32 bits."""


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The CRC of ``data``, going on from ``value``."""
    view = memoryview(data)
    for start in range(0, len(view), _PIECE_BYTES):
        value = _of_piece(view[start : start + _PIECE_BYTES], value)
    return value


def _of_piece(piece: memoryview, value: int) -> int:
    size = len(piece)
    words = -(-size // _WORD_BYTES)
    padded = np.zeros(words * _WORD_BYTES, np.uint8)
    padded[words * _WORD_BYTES - size :] = np.frombuffer(piece, np.uint8)
    if size < 4:  # too short to begin with a state: byte by byte
        return _slowly(bytes(piece), value)
    start = words * _WORD_BYTES - size
    first = padded[start : start + 4]
    first ^= np.frombuffer((value ^ _MASK).to_bytes(4, "little"), np.uint8)
    return _remainder(padded) ^ _MASK


def _slowly(piece: bytes, value: int) -> int:
    state = value ^ _MASK
    for octet in piece:
        state ^= octet
        for _ in range(8):
            state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return state ^ _MASK


def _remainder(padded: NDArray[np.uint8]) -> int:
    """The CRC of whole words, without inversions."""
    quarters = padded.view("<u2").reshape(-1, 4)
    tables = _word_tables()
    found: Words = tables[0][quarters[:, 0]]
    for number in range(1, 4):
        found ^= tables[number][quarters[:, number]]
    moved_bytes = _WORD_BYTES
    while len(found) > 1:
        if len(found) % 2:
            found = np.concatenate((np.zeros(1, np.uint32), found))
        low, high = _moving(moved_bytes)
        left = found[0::2]
        found = low[left & _LOW] ^ high[left >> _HALF] ^ found[1::2]
        moved_bytes *= 2
    return int(found[0]) if len(found) else 0


@cache
def _moving(size_bytes: int) -> tuple[Words, Words]:
    """The tables that move a state over ``size_bytes`` (a power of two) of zeros, for its lower and its upper half."""
    matrix = _matrix(size_bytes)
    return _table(matrix[:16]), _table(matrix[16:])


@cache
def _matrix(size_bytes: int) -> Matrix:
    if size_bytes == 1:
        return tuple(_slowly_moved(1 << bit) for bit in range(32))
    half = _matrix(size_bytes // 2)
    return tuple(_apply(half, image) for image in half)


def _slowly_moved(state: int) -> int:
    for _ in range(8):
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
