"""Fetch without objects: the request walked into tuples, the response written from tuples as a list of buffers.

Records are buffers of their own, uncopied. The generated codec is the reference: a property test holds both to the
same bytes. Supports versions 4 to 18. ``fetch_client_fast`` is the other end.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

from ottla.broker.fetch_tuples import (
    FIRST_FLEXIBLE,
    FIRST_VERSION,
    FIRST_WITH_TOPIC_ID,
    NO_HIGH_WATERMARK,
    NOBODY,
    EpochPair,
    FetchedPartition,
    FetchPartition,
    FetchRequestTuple,
    Forgotten,
    Topics,
)
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.fetch_old import FETCHED_V5, HEAD_V7, encode_old_response, walk_old
from ottla.broker.wire.primitives import (
    INT32,
    TAGS_MAX,
    UNCOPIED_MIN,
    Buffer,
    check_count,
    compact_count,
    encode_tag,
    encode_varint,
    more_string,
    more_varint,
    numbers,
    read_compact_string,
    read_varint,
    refused_count,
    skip_tags,
    tag_count,
    tag_of_size,
    truncated,
    unexpected_null,
)
from ottla.broker.wire.produce_fast import NodeEndpoint, Topic, encode_node_endpoints, encode_topic
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

HEAD_V15 = Struct(">iiibii")  # max wait, min bytes, max bytes, isolation level, the session's id and epoch
ID_COUNT = Struct(">16sB")  # topic id, first byte of the count of partitions
PARTITION_V12 = Struct(">iiqiqiB")  # and the count of tagged fields
REPLICA_STATE = Struct(">iq")
HIGH_WATERMARK = Struct(">q")

ANSWER_V4 = Struct(">i")
ANSWER_V7 = Struct(">ihi")  # throttle time, error code, session id
FETCHED_V12 = Struct(">ihqqqBi")  # no aborted transactions, preferred read replica
ABORTED_V12 = Struct(">qqx")
DIVERGING = Struct(">iqx")
LEADER = Struct(">iix")
SNAPSHOT = Struct(">qix")


def walk_fetch(view: memoryview, pos: int, version: int) -> FetchRequestTuple:
    """Reads a Fetch request. ``view`` must end where the frame ends.

    Raises WireError: UNSUPPORTED_VERSION below version 4, INVALID_REQUEST when the bytes are no such request.
    """
    if version < FIRST_VERSION:
        raise WireError(f"Fetch version {version} is no longer served", ErrorCode.UNSUPPORTED_VERSION)
    try:
        return walk_flexible(view, pos, version) if version >= FIRST_FLEXIBLE else walk_old(view, pos, version)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise WireError(f"bytes are not a Fetch request of version {version}: {error}") from error


def walk_flexible(view: memoryview, pos: int, version: int) -> FetchRequestTuple:
    replica_id = -1
    if version >= 15:
        wait_ms, min_bytes, max_bytes, isolation, session, epoch = HEAD_V15.unpack_from(view, pos)
        pos += 21
    else:
        replica_id, wait_ms, min_bytes, max_bytes, isolation, session, epoch = HEAD_V7.unpack_from(view, pos)
        pos += 25
    replica_epoch, cluster_id = -1, None
    topics: Topics = []
    forgotten: Forgotten = []
    rack_id = ""
    if view[pos] != 1:
        topics, pos = walk_topics(view, pos, version)
    else:
        pos += 1
    # Most requests end with no forgotten topics, an empty rack id and no tagged fields.
    if view[pos] != 1 or view[pos + 1] != 1 or view[pos + 2] != 0:
        forgotten, pos = walk_forgotten(view, pos, version)
        rack, pos = read_compact_string(view, pos)
        if rack is None:
            raise unexpected_null()
        rack_id = rack
        cluster_id, replica = walk_request_tags(view, pos + 1, view[pos], version)
        replica_id, replica_epoch = replica or (replica_id, -1)
    head = (replica_id, replica_epoch, wait_ms, min_bytes, max_bytes, isolation, session, epoch)
    return *head, topics, forgotten, rack_id, cluster_id


def walk_topics(view: memoryview, pos: int, version: int) -> tuple[Topics, int]:
    limit = len(view)
    count, pos = compact_count(view, pos, 3)
    topics: Topics = []
    for _ in range(count):
        topic: Topic
        if version >= FIRST_WITH_TOPIC_ID:
            topic, count = ID_COUNT.unpack_from(view, pos)
            pos += 17
        else:
            length = view[pos]
            pos += 1
            if length > 127:
                length, pos = more_string(view, pos, length)
            if length == 0:
                raise unexpected_null()
            topic = str(view[pos : (pos := pos + length - 1)], "utf-8")
            count = view[pos]
            pos += 1
        if count > 127:
            count, pos = more_varint(view, pos, count)
        if not 0 < count <= (limit - pos) // 33 + 1:
            raise refused_count(count, limit - pos)
        partitions: list[FetchPartition] = []
        for _ in range(count - 1):
            index, epoch, offset, last_epoch, start, max_bytes, tags = PARTITION_V12.unpack_from(view, pos)
            pos += 33
            directory, high_watermark = ZERO_ID, NO_HIGH_WATERMARK
            if tags:
                directory, high_watermark, pos = walk_partition_tags(view, pos, tags, version)
            partitions.append((index, epoch, offset, last_epoch, start, max_bytes, directory, high_watermark))
        pos = skip_tags(view, pos + 1, view[pos]) if view[pos] else pos + 1
        topics.append((topic, partitions))
    return topics, pos


def walk_topic(view: memoryview, pos: int, version: int) -> tuple[Topic, int]:
    if version >= FIRST_WITH_TOPIC_ID:
        return bytes(view[pos : pos + 16]), pos + 16
    topic, pos = read_compact_string(view, pos)
    if topic is None:
        raise unexpected_null()
    return topic, pos


def walk_forgotten(view: memoryview, pos: int, version: int) -> tuple[Forgotten, int]:
    count, pos = compact_count(view, pos, 3)
    forgotten: Forgotten = []
    for _ in range(count):
        topic, pos = walk_topic(view, pos, version)
        partition_count, pos = compact_count(view, pos, 4)
        forgotten.append((topic, list(numbers("i", partition_count).unpack_from(view, pos))))
        pos += 4 * partition_count
        tags = view[pos]
        pos += 1
        if tags:
            pos = skip_tags(view, pos, tags)
    return forgotten, pos


def read_tags(view: memoryview, pos: int, first: int) -> tuple[list[tuple[int, int, int]], int]:
    """Every (tag, position, end) of a tagged section whose count began with the byte ``first``."""
    count, pos = (first, pos) if first <= TAGS_MAX else tag_count(view, pos, first)
    check_count(count, 2, view, pos)
    found = []
    for _ in range(count):
        tag, pos = read_varint(view, pos)
        size, pos = read_varint(view, pos)
        found.append((tag, pos, pos + size))
        pos += size
    if pos > len(view):
        raise truncated()
    return found, pos


def walk_partition_tags(view: memoryview, pos: int, first: int, version: int) -> tuple[bytes, int, int]:
    directory, high_watermark = ZERO_ID, NO_HIGH_WATERMARK
    tags, pos = read_tags(view, pos, first)
    for tag, start, end in tags:
        if tag == 0 and version >= 17:
            if end - start != 16:
                raise tag_of_size(tag, end - start)
            directory = bytes(view[start:end])
        elif tag == 1 and version >= 18:
            if end - start != 8:
                raise tag_of_size(tag, end - start)
            high_watermark = HIGH_WATERMARK.unpack_from(view, start)[0]
    return directory, high_watermark, pos


def walk_request_tags(
    view: memoryview, pos: int, first: int, version: int
) -> tuple[str | None, tuple[int, int] | None]:
    """The cluster id, and the replica's (id, epoch)."""
    cluster_id, replica = None, None
    tags, _ = read_tags(view, pos, first)
    for tag, start, end in tags:
        if tag == 0:
            cluster_id, last = read_compact_string(view, start)
        elif tag == 1 and version >= 15:
            replica = REPLICA_STATE.unpack_from(view, start)
            last = skip_tags(view, start + 13, view[start + 12])
        else:
            continue
        if last != end:
            raise tag_of_size(tag, end - start)
    return cluster_id, replica


def encode_fetch_response(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[FetchedPartition]]],
    *,
    session_id: int = 0,
    error_code: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The response's buffers in order. ``node_endpoints`` are dropped before version 16."""
    if version >= 7:
        head = ANSWER_V7.pack(throttle_time_ms, error_code, session_id)
    else:
        head = ANSWER_V4.pack(throttle_time_ms)
    if version < FIRST_FLEXIBLE:
        return encode_old_response(version, head, topics)
    return encode_flexible_response(head, topics, node_endpoints if version >= 16 else ())


def encode_flexible_response(
    head: bytes, topics: Sequence[tuple[Topic, Sequence[FetchedPartition]]], endpoints: Sequence[NodeEndpoint]
) -> list[Buffer]:
    buffers: list[Buffer] = []
    parts: list[Buffer] = [head + encode_varint(len(topics) + 1)]
    for topic, partitions in topics:
        parts.append(encode_topic(topic) + encode_varint(len(partitions) + 1))
        for partition in partitions:
            index, error, watermark, stable, start, aborted, preferred, records, diverging, leader, snapshot = partition
            if aborted:
                parts.append(FETCHED_V5.pack(index, error, watermark, stable, start))
                parts.append(encode_aborted(aborted, preferred))
            else:
                none = 0 if aborted is None else 1
                parts.append(FETCHED_V12.pack(index, error, watermark, stable, start, none, preferred))
            size = -1 if records is None else len(records)
            parts.append(encode_varint(size + 1))
            if records is not None and size >= UNCOPIED_MIN:
                buffers.append(b"".join(parts))
                buffers.append(records)
                parts.clear()
            elif records is not None:
                parts.append(records)
            parts.append(encode_partition_tags(diverging, leader, snapshot))
        parts.append(b"\0")
    parts.append(encode_node_endpoints(endpoints))
    buffers.append(b"".join(parts))
    return buffers


def encode_aborted(aborted: Sequence[tuple[int, int]], preferred: int) -> bytes:
    """The aborted transactions and the preferred read replica behind them."""
    listed = [ABORTED_V12.pack(*transaction) for transaction in aborted]
    return b"".join([encode_varint(len(aborted) + 1), *listed, INT32.pack(preferred)])


def encode_partition_tags(diverging: EpochPair | None, leader: EpochPair | None, snapshot: EpochPair | None) -> bytes:
    if diverging is None and leader is None and snapshot is None:
        return b"\0"
    tags = []
    if diverging not in (None, NOBODY):
        tags.append(encode_tag(0, DIVERGING.pack(*diverging)))
    if leader not in (None, NOBODY):
        tags.append(encode_tag(1, LEADER.pack(*leader)))
    if snapshot not in (None, NOBODY):
        tags.append(encode_tag(2, SNAPSHOT.pack(*snapshot)))
    return encode_varint(len(tags)) + b"".join(tags)
