"""How far a run of batches is sound: CRCs, lengths, offsets. One tight loop, for recovery and for the first read of old bytes."""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.log.batch import CRC_START, HEADER_BYTES, LOG_OVERHEAD, MAGIC, CorruptBatchError, check_crc, read_header

# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp.
_FIELDS = Struct(">qiibIhiqq").unpack_from
_LENGTH_AND_PRODUCER = Struct(">8xi31xq").unpack_from
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD

Note = Callable[[int, int, int, int], None]
"""Told of each sound batch: position, size, last offset, largest timestamp."""


class Expectation(NamedTuple):
    """What batches have to be like. ``dense``: no offset may be missing; ``limit``: the last offset there can be."""

    dense: bool
    limit: int


class Sound(NamedTuple):
    """What was found: ``size`` bytes are sound; the next offset and the leader epoch after them."""

    size: int
    next_offset: int
    epoch: int


def sound_prefix(
    data: memoryview,
    next_offset: int,
    epoch: int,
    expected: Expectation,
    note: Note | None = None,
    note_epoch: Callable[[int, int], None] | None = None,
) -> Sound:
    """How much of ``data``, which begins with a batch, is sound. A batch cut off at the end is not.

    Epochs may not fall and offsets not overlap: a batch can be whole and yet be of another history. ``note_epoch`` is told of each new one
    and of where what is before it ends.
    """
    dense, limit = expected
    at, end = 0, len(data)
    while end - at >= HEADER_BYTES:
        base_offset, length, leader_epoch, magic, crc, _, delta, _, max_timestamp = _FIELDS(data, at)
        following = at + LOG_OVERHEAD + length
        if (
            (base_offset != next_offset and (dense or base_offset < next_offset))
            or magic != MAGIC
            or length < _LENGTH_MIN
            or following > end
            or not 0 <= delta <= limit - base_offset
            or leader_epoch < epoch
            or crc32c(data[at + CRC_START : following]) != crc
        ):
            break
        if leader_epoch != epoch:
            epoch = leader_epoch
            if note_epoch is not None:
                note_epoch(epoch, next_offset)
        next_offset = base_offset + delta + 1
        if note is not None:
            note(at, following - at, next_offset - 1, max_timestamp)
        at = following
    return Sound(at, next_offset, epoch)


def batches_of_producers(data: memoryview) -> tuple[list[int], int]:
    """(positions of the whole batches that have a producer id, bytes of whole batches). Lengths are believed."""
    found, at, end = [], 0, len(data)
    while end - at >= HEADER_BYTES:
        length, producer_id = _LENGTH_AND_PRODUCER(data, at)
        following = at + LOG_OVERHEAD + length
        if length < _LENGTH_MIN or following > end:
            break
        if producer_id >= 0:
            found.append(at)
        at = following
    return found, at


def what_is_wrong(data: memoryview, at: int, next_offset: int) -> str:
    """Says why the batch at ``at`` is not sound."""
    try:
        header = read_header(data, at)
        check_crc(data, header, at)
    except CorruptBatchError as error:
        return error.message
    return f"batch {header.base_offset}..{header.last_offset} of epoch {header.leader_epoch} where {next_offset} was expected"
