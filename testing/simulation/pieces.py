"""A replica's log in pieces, and the batches in them.

All replicas hold the same bytes and are looked at in turn, so what a piece says is remembered for a while.
"""

from collections.abc import Iterator
from functools import lru_cache

from ottla.broker.replication.partition import Partition
from ottla.log.batch import BatchHeader, headers

READ_BYTES = 4 << 20


def pieces(partition: Partition, start: int, end: int) -> Iterator[bytes]:
    """Whole batches of a replica's log, from ``start`` up to ``end``, read as a consumer would: what it cannot pass, ends it."""
    while start < end:
        data = partition.log.read(start, READ_BYTES, end, minimum_one=True).data
        found = batches_of(data)
        if not found or found[-1][1].next_offset <= start:
            return
        yield data
        start = found[-1][1].next_offset


@lru_cache(128)
def batches_of(data: bytes) -> tuple[tuple[int, BatchHeader], ...]:
    """(position, header) of each."""
    return tuple(headers(data))
