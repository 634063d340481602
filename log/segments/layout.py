"""How a segment lies on disk: the names of its files, and the entries of its indexes, byte for byte Kafka's.

00000000000000000042.log         its batches; 42 is the segment's base offset
00000000000000000042.index       offset index: (relative last offset of a batch, where the batch begins), int32 each
00000000000000000042.timeindex   time index: (largest timestamp so far, int64; relative last offset of its batch, int32)
00000000000000000042.txnindex    what was aborted (`ottla.log.segments.transactions`); only where something was
"""

from struct import Struct

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
"""Behind one of `SUFFIXES`: what compaction writes, what takes its place, what goes (`ottla.log.compaction.swap`)."""

INDEX_ENTRY = Struct(">ii")
TIME_INDEX_ENTRY = Struct(">qi")
RELATIVE_OFFSET_MAX = 2**31 - 1


def stem(directory: str, base_offset: int) -> str:
    """The path of a segment's files but for their suffixes."""
    return f"{directory}/{base_offset:020d}"


def base_offset_of(name: str) -> int | None:
    """The base offset in the name of a ``.log`` file; None for another name."""
    digits = name.removesuffix(LOG_SUFFIX)
    return int(digits) if digits != name and len(digits) == 20 and digits.isdecimal() else None
