"""The first record of a batch at or after a time, found without making a record and without holding the batch."""

from collections.abc import Iterable

from ottla.log.batch import BatchHeader
from ottla.log.config import FOREVER
from ottla.log.records import RecordError

_HEAD_BYTES_MAX = 21  # length, attributes, timestamp delta, offset delta


def first_at_or_after(  # noqa: C901 -- flat: a batch may hold a million records
    pieces: Iterable[bytes], header: BatchHeader, timestamp: int, lowest_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first one at or after ``timestamp`` whose offset is not below ``lowest_offset``.

    Reads no further than that. Raises RecordError where records are not what the header says, KafkaError as the pieces do.
    """
    wanted = timestamp - header.base_timestamp
    lowest = lowest_offset - header.base_offset
    index, rest, skip = 0, b"", 0
    for piece in pieces:
        if skip >= len(piece):
            skip -= len(piece)
            continue
        block = rest + piece[skip:]
        at, end, skip = 0, len(block), 0
        try:
            while index < header.records_count:
                start = at
                value = block[at]
                at += 1
                if value > 0x7F:
                    value = value & 0x7F | block[at] << 7
                    at += 1
                    if value > 0x3FFF:
                        value, at = _long(block, start)
                following = at + (value >> 1)
                at += 1  # attributes
                value = block[at]
                at += 1
                if value > 0x7F:
                    value, at = _long(block, at - 1)
                delta = (value >> 1) ^ -(value & 1)
                value = block[at]
                at += 1
                if value > 0x7F:
                    value, at = _long(block, at - 1)
                if following < at or value & 1 or value >> 1 > header.last_offset_delta:
                    raise RecordError(f"record {index} is not what its batch says", index)
                if delta >= wanted and value >> 1 >= lowest and header.base_timestamp + delta < FOREVER:
                    return header.base_offset + (value >> 1), header.base_timestamp + delta
                index += 1
                at = following
                if at >= end:
                    skip, start = at - end, end
                    break
            else:
                start = end
        except IndexError:
            if end - start >= _HEAD_BYTES_MAX:
                raise RecordError(f"record {index} has no end", index) from None
        rest = block[start:]
    if rest or skip or index < header.records_count:
        raise RecordError(f"{header.records_count} records announced, {index} are there", index)
    return None


def _long(block: bytes, at: int) -> tuple[int, int]:
    """(a number as it lies there, position behind it). IndexError where it is cut off."""
    value = 0
    for shift in range(0, 70, 7):
        byte = block[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise RecordError(f"number of more than 10 bytes before {at}")
