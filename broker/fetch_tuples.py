"""What a Fetch asks and what it is answered, as tuples: the wire walks them, handlers and followers work on them."""

from collections.abc import Sequence
from typing import Final

from ottla.runtime.disk import Buffer

Topic = str | bytes
"""Name or 16-byte topic id, as the client names it."""

FetchPartition = tuple[int, int, int, int, int, int, bytes, int]
"""(partition, current leader epoch or -1, fetch offset, last fetched epoch or -1, the follower's log start offset or
-1, max bytes, the replica's directory id, the follower's high watermark or 2^63-1)."""

Topics = list[tuple[Topic, list[FetchPartition]]]
Forgotten = list[tuple[Topic, list[int]]]

FetchRequestTuple = tuple[int, int, int, int, int, int, int, int, Topics, Forgotten, str, str | None]
"""(replica id or -1, replica epoch or -1, max wait ms, min bytes, max bytes, isolation level, session id, session epoch,
topics, forgotten topics, rack id, cluster id)."""

EpochPair = tuple[int, int]

FetchedPartition = tuple[
    int,
    int,
    int,
    int,
    int,
    Sequence[tuple[int, int]] | None,
    int,
    Buffer | None,
    EpochPair | None,
    EpochPair | None,
    EpochPair | None,
]
"""(partition, error code, high watermark, last stable offset, log start offset, aborted transactions as (producer id,
first offset) or None, preferred read replica or -1, records, diverging (epoch, end offset), current (leader id, leader
epoch), snapshot (end offset, epoch)). Versions that lack a part drop it."""

# Where a `FetchedPartition` has its parts.
INDEX: Final = 0
ERROR: Final = 1
HIGH_WATERMARK: Final = 2
LOG_START: Final = 4
PREFERRED: Final = 6
RECORDS: Final = 7
DIVERGING: Final = 8
LEADER: Final = 9

FIRST_VERSION = 4
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_ID = 13
NO_HIGH_WATERMARK = 2**63 - 1
NOBODY = (-1, -1)
