"""Fetch from the client's end, for the follower that replicates: request packed from tuples, response walked.

The records of a response are slices of the frame, never copied. Topic ids only: versions 13 to 18. The tuples are
those of ``fetch_tuples``.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

from ottla.broker.fetch_tuples import (
    FIRST_WITH_TOPIC_ID,
    NO_HIGH_WATERMARK,
    EpochPair,
    FetchedPartition,
    FetchPartition,
)
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.fetch_fast import DIVERGING, HEAD_V15, PARTITION_V12, SNAPSHOT, read_tags
from ottla.broker.wire.fetch_old import HEAD_V7
from ottla.broker.wire.primitives import (
    INT32,
    compact_count,
    encode_compact_string,
    encode_tag,
    encode_varint,
    more_varint,
    numbers,
    read_compact_string,
    skip_tags,
    tag_of_size,
    unexpected_null,
)
from ottla.broker.wire.produce_fast import NodeEndpoint
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

FetchResponseTuple = tuple[int, int, int, list[tuple[bytes, list[FetchedPartition]]], list[NodeEndpoint]]
"""(throttle time ms, error code, session id, [(topic id, partitions)], node endpoints)."""

REPLICA_STATE = Struct(">iqx")
HIGH_WATERMARK = Struct(">q")
ANSWER = Struct(">ihi")
FETCHED = Struct(">ihqqqBiBBB")  # ..., aborted transactions, preferred read replica, the size's first three bytes
PREFERRED_SIZE = Struct(">iBBB")
ABORTED = Struct(">qqB")  # and the count of tagged fields
EPOCH_PAIRS = (DIVERGING, Struct(">iix"), SNAPSHOT)
"""The layout of the partition's tagged pairs of numbers, by tag, when they have no tagged fields themselves."""


def encode_fetch_request(
    version: int,
    topics: Sequence[tuple[bytes, Sequence[FetchPartition]]],
    *,
    replica_id: int = -1,
    replica_epoch: int = -1,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[bytes, Sequence[int]]] = (),
    rack_id: str = "",
    cluster_id: str | None = None,
) -> bytes:
    """The request's body. A replica's directory id goes from version 17 on, its high watermark from 18."""
    require_version(version)
    head = (max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch)
    parts = [HEAD_V15.pack(*head) if version >= 15 else HEAD_V7.pack(replica_id, *head)]
    parts.append(encode_varint(len(topics) + 1))
    for topic_id, partitions in topics:
        parts.append(topic_id + encode_varint(len(partitions) + 1))
        parts += [encode_partition(version, partition) for partition in partitions]
        parts.append(b"\0")
    parts.append(encode_varint(len(forgotten) + 1))
    for topic_id, indexes in forgotten:
        parts.append(topic_id + encode_varint(len(indexes) + 1) + numbers("i", len(indexes)).pack(*indexes) + b"\0")
    parts.append(encode_compact_string(rack_id))
    tags = [] if cluster_id is None else [encode_tag(0, encode_compact_string(cluster_id))]
    if version >= 15 and (replica_id, replica_epoch) != (-1, -1):
        tags.append(encode_tag(1, REPLICA_STATE.pack(replica_id, replica_epoch)))
    parts.append(encode_varint(len(tags)) + b"".join(tags))
    return b"".join(parts)


def require_version(version: int) -> None:
    if version < FIRST_WITH_TOPIC_ID:
        raise WireError(f"a follower does not speak Fetch version {version}", ErrorCode.UNSUPPORTED_VERSION)


def encode_partition(version: int, partition: FetchPartition) -> bytes:
    index, epoch, offset, last_epoch, start, max_bytes, directory_id, high_watermark = partition
    if (directory_id == ZERO_ID or version < 17) and (high_watermark == NO_HIGH_WATERMARK or version < 18):
        return PARTITION_V12.pack(index, epoch, offset, last_epoch, start, max_bytes, 0)
    tags = []
    if version >= 17 and directory_id != ZERO_ID:
        tags.append(encode_tag(0, directory_id))
    if version >= 18 and high_watermark != NO_HIGH_WATERMARK:
        tags.append(encode_tag(1, HIGH_WATERMARK.pack(high_watermark)))
    return PARTITION_V12.pack(*partition[:6], len(tags)) + b"".join(tags)


def walk_fetch_response(view: memoryview, pos: int, version: int) -> FetchResponseTuple:
    """Reads a Fetch response. ``view`` must end where the frame ends. Raises WireError."""
    require_version(version)
    try:
        throttle_time_ms, error_code, session_id = ANSWER.unpack_from(view, pos)
        count, pos = compact_count(view, pos + 10, 18)
        topics = []
        for _ in range(count):
            topic_id = bytes(view[pos : pos + 16])
            partitions, pos = walk_partitions(view, pos + 16)
            topics.append((topic_id, partitions))
        endpoints = walk_node_endpoints(view, pos, version)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise WireError(f"bytes are not a Fetch response of version {version}: {error}") from error
    return throttle_time_ms, error_code, session_id, topics, endpoints


def walk_partitions(view: memoryview, pos: int) -> tuple[list[FetchedPartition], int]:
    """A topic's partitions and its tagged fields."""
    count, pos = compact_count(view, pos, 37)
    partitions: list[FetchedPartition] = []
    for _ in range(count):
        # A size of up to 2 MB is read at once; the bytes are there: the partition's, topic's and response's ends.
        index, error, watermark, stable, start, transactions, preferred, size, second, third = FETCHED.unpack_from(
            view, pos
        )
        pos += 36
        aborted = None
        if transactions:
            aborted, pos = walk_aborted(view, pos - 6)
            preferred, size, second, third = PREFERRED_SIZE.unpack_from(view, pos)
            pos += 5
        if size > 127:
            if second < 128:
                size += (second << 7) - 128
                pos += 1
            elif third < 128:
                size += (second << 7) + (third << 14) - 16512
                pos += 2
            else:
                size, pos = more_varint(view, pos, size)
        records = view[pos : (pos := pos + size - 1)] if size else None
        diverging = leader = snapshot = None
        if view[pos]:  # fails when the records reached beyond the end
            (diverging, leader, snapshot), pos = walk_partition_tags(view, pos + 1, view[pos])
        else:
            pos += 1
        partitions.append(
            (index, error, watermark, stable, start, aborted, preferred, records, diverging, leader, snapshot)
        )
    tags = view[pos]
    return partitions, skip_tags(view, pos + 1, tags)


def walk_aborted(view: memoryview, pos: int) -> tuple[list[tuple[int, int]], int]:
    count, pos = compact_count(view, pos, 17)
    aborted = []
    for _ in range(count):
        producer_id, first_offset, tags = ABORTED.unpack_from(view, pos)
        pos = skip_tags(view, pos + 17, tags)
        aborted.append((producer_id, first_offset))
    return aborted, pos


def walk_partition_tags(view: memoryview, pos: int, first: int) -> tuple[list[EpochPair | None], int]:
    """(diverging epoch, current leader, snapshot id), each a pair or None."""
    pairs: list[EpochPair | None] = [None, None, None]
    tags, pos = read_tags(view, pos, first)
    for tag, start, end in tags:
        if tag < len(EPOCH_PAIRS):
            layout = EPOCH_PAIRS[tag]
            last = start + layout.size
            if skip_tags(view, last, view[last - 1]) != end:
                raise tag_of_size(tag, end - start)
            pairs[tag] = layout.unpack_from(view, start)
    return pairs, pos


def walk_node_endpoints(view: memoryview, pos: int, version: int) -> list[NodeEndpoint]:
    """The response's tagged section."""
    endpoints: list[NodeEndpoint] = []
    tags, _ = read_tags(view, pos + 1, view[pos])
    for tag, start, end in tags:
        if tag == 0 and version >= 16:
            endpoints, last = walk_endpoint_list(view, start)
            if last != end:
                raise tag_of_size(tag, end - start)
    return endpoints


def walk_endpoint_list(view: memoryview, pos: int) -> tuple[list[NodeEndpoint], int]:
    count, pos = compact_count(view, pos, 11)
    endpoints = []
    for _ in range(count):
        node_id: int = INT32.unpack_from(view, pos)[0]
        host, pos = read_compact_string(view, pos + 4)
        if host is None:
            raise unexpected_null()
        port: int = INT32.unpack_from(view, pos)[0]
        rack, pos = read_compact_string(view, pos + 4)
        pos = skip_tags(view, pos + 1, view[pos])
        endpoints.append((node_id, host, port, rack))
    return endpoints, pos
