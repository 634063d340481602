"""Produce without objects: the request walked into tuples, the response packed from tuples.

The records of a partition are a slice of the frame, never copied. The generated codec is the reference: a property
test holds both to the same bytes. Supports request and response versions 3 to 13.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import (
    INT16,
    INT32,
    encode_compact_string,
    encode_string,
    encode_tag,
    encode_varint,
    more_string,
    more_varint,
    read_compact_string,
    read_string,
    refused_count,
    skip_tags,
    too_many,
    truncated,
    unexpected_null,
)
from ottla.runtime.errors import ErrorCode

Topic = str | bytes
"""A topic's name, or from version 13 its 16-byte id."""

Partitions = list[tuple[int, memoryview | None]]
ProduceRequestTuple = tuple[str | None, int, int, list[tuple[Topic, Partitions]]]
"""(transactional id, acks, timeout in ms, [(topic, [(partition, records)])])."""

NodeEndpoint = tuple[int, str, int, str | None]
"""(node id, host, port, rack)."""

PartitionAck = tuple[int, int, int, int, int, Sequence[tuple[int, str | None]], str | None, tuple[int, int] | None]
"""(partition, error code, base offset, log append time in ms or -1, log start offset, record errors as (index in the
batch, message), error message, (leader id, leader epoch) to go to instead). Versions that lack a part drop it."""

# Where a `PartitionAck` has its parts.
ACK_ERROR: Final = 1
ACK_LEADER: Final = 7

ENTRIES_MAX = 50_000
"""Topics and partitions together. A request that carries records may be large, and must not be millions of entries without any:
each takes three microseconds of everybody's time."""

FIRST_VERSION = 3
FIRST_FLEXIBLE = 9
FIRST_WITH_LEADER = 10
FIRST_WITH_TOPIC_ID = 13

HEAD_V3 = Struct(">hhii")  # length of the transactional id (of most there is none), acks, timeout, count of topics
HEAD_V3_REST = Struct(">hii")
INDEX_SIZE = Struct(">ii")
HEAD_V9 = Struct(">BhiB")  # no transactional id, acks, timeout, first byte of the count of topics
HEAD_V9_REST = Struct(">hiB")
ID_COUNT = Struct(">16sB")  # topic id, first byte of the count of partitions
INDEX_SIZE_V9 = Struct(">iBBB")  # index, first three bytes of the size (or what follows it)
ACK_V3 = Struct(">ihqq")
ACK_V5 = Struct(">ihqqq")
ACK_V8 = Struct(">ihqqqih")  # no record errors, no message
ACK_V9 = Struct(">ihqqqBBx")  # the same, compact, no tagged fields
LONE_V3 = Struct(">ihqqi")  # one partition of one topic and the throttle time behind it
LONE_V5 = Struct(">ihqqqi")
LONE_V8 = Struct(">ihqqqihi")
LONE_V9 = Struct(">ihqqqBBxxix")
LEADER = Struct(">iix")


def walk_produce(view: memoryview, pos: int, version: int) -> ProduceRequestTuple:
    """Reads a Produce request. ``view`` must end where the frame ends.

    Raises WireError: UNSUPPORTED_VERSION below version 3 (message formats 0 and 1, gone since Kafka 4.0, though
    ApiVersions advertises them for old librdkafka's sake), INVALID_REQUEST when the bytes are no such request.
    """
    if version < FIRST_VERSION:
        raise WireError(f"Produce version {version} is no longer served", ErrorCode.UNSUPPORTED_VERSION)
    try:
        if version >= FIRST_FLEXIBLE:
            return walk_flexible(view, pos, version >= FIRST_WITH_TOPIC_ID)
        return walk_old(view, pos)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise WireError(f"bytes are not a Produce request of version {version}: {error}") from error


def walk_flexible(view: memoryview, pos: int, by_id: bool) -> ProduceRequestTuple:  # noqa: C901 -- flat, see below
    # A call would cost as much as what it does here, for every partition of every request.
    limit = len(view)
    null, acks, timeout_ms, count = HEAD_V9.unpack_from(view, pos)
    pos += 8
    transactional_id = None
    if null:
        transactional_id, pos = read_compact_string(view, pos - 8)
        acks, timeout_ms, count = HEAD_V9_REST.unpack_from(view, pos)
        pos += 7
    if count > 127:
        count, pos = more_varint(view, pos, count)
    left = limit if limit <= ENTRIES_MAX else ENTRIES_MAX
    if not 0 < count <= left:
        raise refused(count, left, limit - pos)
    topics: list[tuple[Topic, Partitions]] = []
    for _ in range(count - 1):
        topic: Topic
        if by_id:
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
        if not 0 < count <= left:
            raise refused(count, left, limit - pos)
        left -= count
        partitions: Partitions = []
        for _ in range(count - 1):
            # Behind the size there are at least three bytes (the ends of partition, topic and request), so that
            # a size of up to 2 MB is read at once.
            index, size, second, third = INDEX_SIZE_V9.unpack_from(view, pos)
            if size < 128:
                pos += 5
            elif second < 128:
                size += (second << 7) - 128
                pos += 6
            elif third < 128:
                size += (second << 7) + (third << 14) - 16512
                pos += 7
            else:
                size, pos = more_varint(view, pos + 5, size)
            partitions.append((index, view[pos : (pos := pos + size - 1)] if size else None))
            if view[pos]:  # fails when the records reached beyond the end
                pos = skip_tags(view, pos + 1, view[pos])
            else:
                pos += 1
        pos = skip_tags(view, pos + 1, view[pos]) if view[pos] else pos + 1
        topics.append((topic, partitions))
    if view[pos]:
        skip_tags(view, pos + 1, view[pos])
    return transactional_id, acks, timeout_ms, topics


def refused(count: int, left: int, remaining: int) -> WireError:
    """The error of a compact count."""
    return too_many_entries() if left < count <= remaining else refused_count(count, remaining)


def refused_old(count: int, size_min: int, remaining: int) -> WireError:
    """The error of a count of an old version."""
    if count < 0:
        return unexpected_null()
    return too_many(count, remaining) if count * size_min > remaining else too_many_entries()


def too_many_entries() -> WireError:
    return WireError(f"it names more than {ENTRIES_MAX} topics and partitions")


def walk_old(view: memoryview, pos: int) -> ProduceRequestTuple:
    limit = len(view)
    length, acks, timeout_ms, count = HEAD_V3.unpack_from(view, pos)
    pos += 12
    transactional_id = None
    if length >= 0:
        transactional_id, pos = read_string(view, pos - 12)
        acks, timeout_ms, count = HEAD_V3_REST.unpack_from(view, pos)
        pos += 10
    left = ENTRIES_MAX
    if not 0 <= count <= left or count * 6 > limit - pos:
        raise refused_old(count, 6, limit - pos)
    left -= count
    topics: list[tuple[Topic, Partitions]] = []
    for _ in range(count):
        (length,) = INT16.unpack_from(view, pos)
        if length < 0:
            raise unexpected_null()
        pos += 2
        topic = str(view[pos : (pos := pos + length)], "utf-8")
        (count,) = INT32.unpack_from(view, pos)
        pos += 4
        if not 0 <= count <= left or count * 8 > limit - pos:
            raise refused_old(count, 8, limit - pos)
        left -= count
        partitions: Partitions = []
        for _ in range(count):
            index, size = INDEX_SIZE.unpack_from(view, pos)
            pos += 8
            partitions.append((index, view[pos : (pos := pos + size)] if size >= 0 else None))
        topics.append((topic, partitions))
    if pos > limit:
        raise truncated()
    return transactional_id, acks, timeout_ms, topics


def encode_produce_ack(
    version: int,
    topic: Topic,
    partition: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_time_ms: int = 0,
) -> bytes:
    """The whole response to a request with one partition and nothing to add: one pack."""
    ack = (partition, error_code, base_offset, log_append_time_ms)
    if version >= FIRST_FLEXIBLE:
        tail = LONE_V9.pack(*ack, log_start_offset, 1, 0, throttle_time_ms)
    elif version == 8:
        tail = LONE_V8.pack(*ack, log_start_offset, 0, -1, throttle_time_ms)
    elif version >= 5:
        tail = LONE_V5.pack(*ack, log_start_offset, throttle_time_ms)
    else:
        tail = LONE_V3.pack(*ack, throttle_time_ms)
    return lone_prefix(version >= FIRST_FLEXIBLE, topic) + tail


@lru_cache(maxsize=4096)
def lone_prefix(flexible: bool, topic: Topic) -> bytes:
    """What precedes the only partition of the only topic."""
    if flexible:
        return b"\2" + encode_topic(topic) + b"\2"
    return INT32.pack(1) + encode_string(str(topic)) + INT32.pack(1)


def encode_topic(topic: Topic) -> bytes:
    return topic if isinstance(topic, bytes) else encode_compact_string(topic)


def encode_produce_response(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[PartitionAck]]],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The response of any shape. ``node_endpoints`` say where the leaders named in it are (dropped before 10)."""
    if version >= FIRST_FLEXIBLE:
        return encode_flexible_response(version, topics, throttle_time_ms, node_endpoints)
    parts = [INT32.pack(len(topics))]
    for topic, partitions in topics:
        parts.append(encode_string(str(topic)) + INT32.pack(len(partitions)))
        parts += [encode_old_ack(version, ack) for ack in partitions]
    parts.append(INT32.pack(throttle_time_ms))
    return b"".join(parts)


def encode_flexible_response(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[PartitionAck]]],
    throttle_time_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    parts = [encode_varint(len(topics) + 1)]
    for topic, partitions in topics:
        parts.append(encode_topic(topic) + encode_varint(len(partitions) + 1))
        for ack in partitions:
            index, error_code, base_offset, append_time, log_start, record_errors, message, leader = ack
            if record_errors or message is not None or leader is not None:
                parts.append(encode_wordy_ack(version, ack))
            else:
                parts.append(ACK_V9.pack(index, error_code, base_offset, append_time, log_start, 1, 0))
        parts.append(b"\0")
    parts.append(INT32.pack(throttle_time_ms))
    parts.append(encode_node_endpoints(node_endpoints if version >= FIRST_WITH_LEADER else ()))
    return b"".join(parts)


def encode_wordy_ack(version: int, ack: PartitionAck) -> bytes:
    """A partition's part from version 9 on when there is more to say than numbers."""
    index, error_code, base_offset, append_time, log_start, record_errors, message, leader = ack
    parts = [ACK_V5.pack(index, error_code, base_offset, append_time, log_start), encode_varint(len(record_errors) + 1)]
    for batch_index, error_message in record_errors:
        parts.append(INT32.pack(batch_index) + encode_compact_string(error_message) + b"\0")
    parts.append(encode_compact_string(message))
    if leader is None or leader == (-1, -1) or version < FIRST_WITH_LEADER:
        parts.append(b"\0")
    else:
        parts.append(b"\1" + encode_tag(0, LEADER.pack(*leader)))
    return b"".join(parts)


def encode_old_ack(version: int, ack: PartitionAck) -> bytes:
    index, error_code, base_offset, append_time, log_start, record_errors, message, _ = ack
    if version < 5:
        return ACK_V3.pack(index, error_code, base_offset, append_time)
    fixed = (index, error_code, base_offset, append_time, log_start)
    if version < 8:
        return ACK_V5.pack(*fixed)
    if not record_errors and message is None:
        return ACK_V8.pack(*fixed, 0, -1)
    parts = [ACK_V5.pack(*fixed), INT32.pack(len(record_errors))]
    parts += [INT32.pack(batch_index) + encode_string(text) for batch_index, text in record_errors]
    parts.append(encode_string(message))
    return b"".join(parts)


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged section whose only field, tag 0, lists nodes; Fetch responses end with the same."""
    if not endpoints:
        return b"\0"
    parts = [encode_varint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts.append(INT32.pack(node_id) + encode_compact_string(host) + INT32.pack(port))
        parts.append(encode_compact_string(rack) + b"\0")
    return b"\1" + encode_tag(0, b"".join(parts))
