"""The headers of many batches at once, as columns. `ottla.log.batch` has the layout, and reads them one by one.

Executors have numpy and pyarrow and nothing else, so what is below reads bytes by itself.
"""

from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.pipeline.arrow.errors import CorruptRecordsError

Bytes = bytes | bytearray | memoryview
Int64s = NDArray[np.int64]
Octets = NDArray[np.uint8]

HEADER_BYTES = 61
LOG_OVERHEAD = 12  # base offset and length: what precedes the bytes that batchLength counts
CRC_AT = 17
CRC_START = 21
LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD
MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)
Headers = np.ndarray[tuple[int], np.dtype[np.void]]

_LENGTH_AND_MAGIC = Struct(">8xi4xb").unpack_from
_LENGTH = Struct(">i").unpack_from


class Walk(NamedTuple):
    """Where whole batches begin, where the last one ends, and the size of the one that was cut off (0: not known)."""

    positions: Int64s
    end: int
    cut_off_bytes: int


def walk(data: Bytes, start: int = 0) -> Walk:
    """Steps over the batches of ``data``, by their lengths only. An impossible length ends the walk: see `impossible`."""
    positions: list[int] = []
    found, length_at = positions.append, _LENGTH
    at, last = start, len(data) - HEADER_BYTES
    size = 0
    while at <= last:
        size = length_at(data, at + 8)[0] + LOG_OVERHEAD
        following = at + size
        if size < HEADER_BYTES or following > last + HEADER_BYTES:
            break
        found(at)
        at = following
        size = 0
    return Walk(np.array(positions, dtype=np.int64), at, size)


def impossible(data: Bytes, at: int) -> str:
    """Why no batch can begin at ``at``; an empty string when one can, as far as its bytes tell."""
    if len(data) - at < MAGIC_AT + 1:
        return ""
    length, magic = _LENGTH_AND_MAGIC(data, at)
    if magic != MAGIC:
        return f"batch version {magic} where {MAGIC} was expected"
    return f"impossible batch length {length}" if length < LENGTH_MIN else ""


MAGIC_AT = 16


def gather(octets: Octets, positions: Int64s) -> Headers:
    """The headers at ``positions``, each of which has its 61 bytes."""
    if not positions.size:
        return np.empty(0, HEADER)
    every = np.ndarray((octets.size - HEADER_BYTES + 1,), f"V{HEADER_BYTES}", octets, strides=(1,))
    return every[positions].view(HEADER)


def corrupt(message: str, headers: Headers, positions: Int64s, index: int) -> CorruptRecordsError:
    """The error that names the batch."""
    return CorruptRecordsError(message, offset=int(headers["base_offset"][index]), position=int(positions[index]))
