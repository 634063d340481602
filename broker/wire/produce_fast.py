"""Produce without objects: the request walked into tuples, the response packed from tuples.

The records of a partition are a slice of the frame, never copied. The generated codec is the reference: a property
test holds both to the same bytes. Supports request and response versions 3 to 13.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError

from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import (
    INT32,
    array_count,
    compact_count,
    encode_compact_string,
    encode_string,
    encode_tag,
    encode_varint,
    more_varint,
    read_compact_string,
    read_string,
    skip_tags,
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

FIRST_VERSION = 3
FIRST_FLEXIBLE = 9
FIRST_WITH_LEADER = 10
FIRST_WITH_TOPIC_ID = 13

ACKS_TIMEOUT = Struct(">hi")
INDEX_SIZE = Struct(">ii")
INDEX_COMPACT_SIZE = Struct(">iB")
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


def walk_flexible(view: memoryview, pos: int, by_id: bool) -> ProduceRequestTuple:
    transactional_id, pos = read_compact_string(view, pos)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(view, pos)
    count, pos = compact_count(view, pos + 6, 3)
    topics: list[tuple[Topic, Partitions]] = []
    for _ in range(count):
        topic: Topic | None
        if by_id:
            topic = bytes(view[pos : pos + 16])
            pos += 16
        else:
            topic, pos = read_compact_string(view, pos)
            if topic is None:
                raise unexpected_null()
        partitions, pos = walk_flexible_partitions(view, pos)
        topics.append((topic, partitions))
    tags = view[pos]
    if skip_tags(view, pos + 1, tags) > len(view) if tags else pos >= len(view):
        raise truncated()
    return transactional_id, acks, timeout_ms, topics


def walk_flexible_partitions(view: memoryview, pos: int) -> tuple[Partitions, int]:
    """A topic's partitions and its tagged fields."""
    count, pos = compact_count(view, pos, 6)
    partitions: Partitions = []
    for _ in range(count):
        index, size = INDEX_COMPACT_SIZE.unpack_from(view, pos)
        pos += 5
        if size > 127:
            size, pos = more_varint(view, pos, size)
        records = view[pos : (pos := pos + size - 1)] if size else None
        tags = view[pos]  # fails when the records reached beyond the end
        pos += 1
        if tags:
            pos = skip_tags(view, pos, tags)
        partitions.append((index, records))
    tags = view[pos]
    pos += 1
    return partitions, skip_tags(view, pos, tags) if tags else pos


def walk_old(view: memoryview, pos: int) -> ProduceRequestTuple:
    transactional_id, pos = read_string(view, pos)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(view, pos)
    count, pos = array_count(view, pos + 6, 6)
    topics: list[tuple[Topic, Partitions]] = []
    for _ in range(count):
        topic, pos = read_string(view, pos)
        if topic is None:
            raise unexpected_null()
        partition_count, pos = array_count(view, pos, 8)
        partitions: Partitions = []
        for _ in range(partition_count):
            index, size = INDEX_SIZE.unpack_from(view, pos)
            pos += 8
            partitions.append((index, view[pos : (pos := pos + size)] if size >= 0 else None))
        topics.append((topic, partitions))
    if pos > len(view):
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
    flexible = version >= FIRST_FLEXIBLE
    parts = [encode_varint(len(topics) + 1) if flexible else INT32.pack(len(topics))]
    for topic, partitions in topics:
        count = len(partitions)
        if flexible:
            parts.append(encode_topic(topic) + encode_varint(count + 1))
            parts += [encode_flexible_ack(version, ack) for ack in partitions]
            parts.append(b"\0")
        else:
            parts.append(encode_string(str(topic)) + INT32.pack(count))
            parts += [encode_old_ack(version, ack) for ack in partitions]
    parts.append(INT32.pack(throttle_time_ms))
    if flexible:
        parts.append(encode_node_endpoints(node_endpoints if version >= FIRST_WITH_LEADER else ()))
    return b"".join(parts)


def encode_flexible_ack(version: int, ack: PartitionAck) -> bytes:
    index, error_code, base_offset, append_time, log_start, record_errors, message, leader = ack
    fixed = (index, error_code, base_offset, append_time, log_start)
    if not record_errors and message is None and leader is None:
        return ACK_V9.pack(*fixed, 1, 0)
    parts = [ACK_V5.pack(*fixed), encode_varint(len(record_errors) + 1)]
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
