"""Fetch without objects: the request walked into tuples, the response written from tuples as a list of buffers.

Records are buffers of their own, uncopied. The generated codec is the reference: a property test holds both to the
same bytes. Supports versions 4 to 18. ``fetch_client_fast`` is the other end.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import (
    INT32,
    UNCOPIED_MIN,
    Buffer,
    array_count,
    check_count,
    compact_count,
    encode_string,
    encode_tag,
    encode_varint,
    more_varint,
    numbers,
    read_compact_string,
    read_string,
    read_varint,
    skip_tags,
    tag_of_size,
    truncated,
    unexpected_null,
)
from ottla.broker.wire.produce_fast import NodeEndpoint, Topic, encode_node_endpoints, encode_topic
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

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

FIRST_VERSION = 4
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_ID = 13
NO_HIGH_WATERMARK = 2**63 - 1
NOBODY = (-1, -1)

HEAD_V4 = Struct(">iiiib")  # replica id, max wait, min bytes, max bytes, isolation level
HEAD_V7 = Struct(">iiiibii")  # and the session's id and epoch
HEAD_V15 = Struct(">iiibii")  # without the replica id, which is tagged
PARTITION_V4 = Struct(">iqi")
PARTITION_V5 = Struct(">iqqi")
PARTITION_V9 = Struct(">iiqqi")
PARTITION_V12 = Struct(">iiqiqiB")  # and the count of tagged fields
REPLICA_STATE = Struct(">iq")
HIGH_WATERMARK = Struct(">q")

ANSWER_V4 = Struct(">i")
ANSWER_V7 = Struct(">ihi")  # throttle time, error code, session id
FETCHED_V4 = Struct(">ihqq")
FETCHED_V5 = Struct(">ihqqq")
FETCHED_V12 = Struct(">ihqqqBi")  # no aborted transactions, preferred read replica
ABORTED = Struct(">qq")
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
    topics, pos = walk_topics(view, pos, version)
    forgotten, pos = walk_forgotten(view, pos, version)
    rack_id, pos = read_compact_string(view, pos)
    if rack_id is None:
        raise unexpected_null()
    tags = view[pos]
    pos += 1
    replica_epoch, cluster_id = -1, None
    if tags:
        cluster_id, replica, pos = walk_request_tags(view, pos, tags, version)
        replica_id, replica_epoch = replica or (replica_id, -1)
    if pos > len(view):
        raise truncated()
    head = (replica_id, replica_epoch, wait_ms, min_bytes, max_bytes, isolation, session, epoch)
    return *head, topics, forgotten, rack_id, cluster_id


def walk_topics(view: memoryview, pos: int, version: int) -> tuple[Topics, int]:
    count, pos = compact_count(view, pos, 3)
    topics: Topics = []
    for _ in range(count):
        topic, pos = walk_topic(view, pos, version)
        partition_count, pos = compact_count(view, pos, 33)
        partitions = []
        for _ in range(partition_count):
            index, epoch, offset, last_epoch, start, max_bytes, tags = PARTITION_V12.unpack_from(view, pos)
            pos += 33
            directory, high_watermark = ZERO_ID, NO_HIGH_WATERMARK
            if tags:
                directory, high_watermark, pos = walk_partition_tags(view, pos, tags, version)
            partitions.append((index, epoch, offset, last_epoch, start, max_bytes, directory, high_watermark))
        tags = view[pos]
        pos += 1
        if tags:
            pos = skip_tags(view, pos, tags)
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
    count, pos = (first, pos) if first < 128 else more_varint(view, pos, first)
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
) -> tuple[str | None, tuple[int, int] | None, int]:
    """The cluster id, the replica's (id, epoch), and the position behind."""
    cluster_id, replica = None, None
    tags, pos = read_tags(view, pos, first)
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
    return cluster_id, replica, pos


def walk_old(view: memoryview, pos: int, version: int) -> FetchRequestTuple:
    session, session_epoch = 0, -1
    if version >= 7:
        replica, wait_ms, min_bytes, max_bytes, isolation, session, session_epoch = HEAD_V7.unpack_from(view, pos)
        pos += 25
    else:
        replica, wait_ms, min_bytes, max_bytes, isolation = HEAD_V4.unpack_from(view, pos)
        pos += 17
    topics, pos = walk_old_topics(view, pos, version)
    forgotten: Forgotten = []
    if version >= 7:
        forgotten, pos = walk_old_forgotten(view, pos)
    rack_id: str | None = ""
    if version >= 11:
        rack_id, pos = read_string(view, pos)
    if rack_id is None:
        raise unexpected_null()
    if pos > len(view):
        raise truncated()
    head = (replica, -1, wait_ms, min_bytes, max_bytes, isolation, session, session_epoch)
    return *head, topics, forgotten, rack_id, None


def walk_old_topics(view: memoryview, pos: int, version: int) -> tuple[Topics, int]:
    layout = PARTITION_V9 if version >= 9 else PARTITION_V5 if version >= 5 else PARTITION_V4
    count, pos = array_count(view, pos, 6)
    topics: Topics = []
    for _ in range(count):
        topic, pos = read_string(view, pos)
        if topic is None:
            raise unexpected_null()
        partition_count, pos = array_count(view, pos, layout.size)
        end = pos + partition_count * layout.size
        topics.append((topic, [old_partition(fields) for fields in layout.iter_unpack(view[pos:end])]))
        pos = end
    return topics, pos


def old_partition(fields: tuple[int, ...]) -> FetchPartition:
    """A partition of a version before 12, which lacks some of the fields."""
    index, *rest = fields
    max_bytes = rest.pop()
    epoch = rest.pop(0) if len(rest) == 3 else -1
    offset = rest[0]
    log_start = rest[1] if len(rest) == 2 else -1
    return index, epoch, offset, -1, log_start, max_bytes, ZERO_ID, NO_HIGH_WATERMARK


def walk_old_forgotten(view: memoryview, pos: int) -> tuple[Forgotten, int]:
    count, pos = array_count(view, pos, 6)
    forgotten: Forgotten = []
    for _ in range(count):
        topic, pos = read_string(view, pos)
        if topic is None:
            raise unexpected_null()
        partition_count, pos = array_count(view, pos, 4)
        forgotten.append((topic, list(numbers("i", partition_count).unpack_from(view, pos))))
        pos += 4 * partition_count
    return forgotten, pos


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
    flexible = version >= FIRST_FLEXIBLE
    writer = Writer()
    if version >= 7:
        writer.parts.append(ANSWER_V7.pack(throttle_time_ms, error_code, session_id))
    else:
        writer.parts.append(ANSWER_V4.pack(throttle_time_ms))
    writer.parts.append(encode_varint(len(topics) + 1) if flexible else INT32.pack(len(topics)))
    for topic, partitions in topics:
        if flexible:
            writer.parts.append(encode_topic(topic) + encode_varint(len(partitions) + 1))
            for partition in partitions:
                write_flexible_partition(writer, partition)
            writer.parts.append(b"\0")
        else:
            writer.parts.append(encode_string(str(topic)) + INT32.pack(len(partitions)))
            for partition in partitions:
                write_old_partition(writer, partition, version)
    if flexible:
        writer.parts.append(encode_node_endpoints(node_endpoints if version >= 16 else ()))
    return writer.finish()


class Writer:
    """Small parts to be joined, between large payloads that go out as they are."""

    __slots__ = ("buffers", "parts")

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.parts: list[Buffer] = []

    def payload(self, data: Buffer) -> None:
        if len(data) < UNCOPIED_MIN:
            self.parts.append(data)
            return
        self.buffers.append(b"".join(self.parts))
        self.parts.clear()
        self.buffers.append(data)

    def finish(self) -> list[Buffer]:
        self.buffers.append(b"".join(self.parts))
        return self.buffers


def write_flexible_partition(writer: Writer, partition: FetchedPartition) -> None:
    index, error, watermark, stable, start, aborted, preferred, records, diverging, leader, snapshot = partition
    if not aborted:
        head = FETCHED_V12.pack(index, error, watermark, stable, start, 0 if aborted is None else 1, preferred)
    else:
        listed = b"".join([ABORTED_V12.pack(*transaction) for transaction in aborted])
        head = FETCHED_V5.pack(index, error, watermark, stable, start) + encode_varint(len(aborted) + 1) + listed
        head += INT32.pack(preferred)
    if records is None:
        writer.parts.append(head + b"\0")
    else:
        writer.parts.append(head + encode_varint(len(records) + 1))
        writer.payload(records)
    if diverging is None and leader is None and snapshot is None:
        writer.parts.append(b"\0")
    else:
        writer.parts.append(encode_partition_tags(diverging, leader, snapshot))


def encode_partition_tags(diverging: EpochPair | None, leader: EpochPair | None, snapshot: EpochPair | None) -> bytes:
    tags = []
    if diverging not in (None, NOBODY):
        tags.append(encode_tag(0, DIVERGING.pack(*diverging)))
    if leader not in (None, NOBODY):
        tags.append(encode_tag(1, LEADER.pack(*leader)))
    if snapshot not in (None, NOBODY):
        tags.append(encode_tag(2, SNAPSHOT.pack(*snapshot)))
    return encode_varint(len(tags)) + b"".join(tags)


def write_old_partition(writer: Writer, partition: FetchedPartition, version: int) -> None:
    index, error, watermark, stable, start, aborted, preferred, records, *_ = partition
    if version >= 5:
        head = FETCHED_V5.pack(index, error, watermark, stable, start)
    else:
        head = FETCHED_V4.pack(index, error, watermark, stable)
    head += INT32.pack(-1 if aborted is None else len(aborted))
    head += b"".join([ABORTED.pack(*transaction) for transaction in aborted or ()])
    if version >= 11:
        head += INT32.pack(preferred)
    writer.parts.append(head + INT32.pack(-1 if records is None else len(records)))
    if records is not None:
        writer.payload(records)
