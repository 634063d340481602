"""Fetch without objects, versions 4 to 11: what clients before Kafka 2.7 speak. ``fetch_fast`` chooses."""

from collections.abc import Sequence
from struct import Struct

from ottla.broker.fetch_tuples import (
    NO_HIGH_WATERMARK,
    RECORDS,
    FetchedPartition,
    FetchPartition,
    FetchRequestTuple,
    Forgotten,
    Topics,
)
from ottla.broker.wire.primitives import (
    INT32,
    UNCOPIED_MIN,
    Buffer,
    array_count,
    encode_string,
    numbers,
    read_string,
    truncated,
    unexpected_null,
)
from ottla.broker.wire.produce_fast import Topic
from ottla.runtime.identifiers import ZERO_ID

HEAD_V4 = Struct(">iiiib")  # replica id, max wait, min bytes, max bytes, isolation level
HEAD_V7 = Struct(">iiiibii")  # and the session's id and epoch
PARTITION_V4 = Struct(">iqi")
PARTITION_V5 = Struct(">iqqi")
PARTITION_V9 = Struct(">iiqqi")
FETCHED_V4 = Struct(">ihqq")
FETCHED_V5 = Struct(">ihqqq")
ABORTED = Struct(">qq")


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


def encode_old_response(
    version: int, head: bytes, topics: Sequence[tuple[Topic, Sequence[FetchedPartition]]]
) -> list[Buffer]:
    """The response's buffers; ``head`` is what precedes the topics."""
    buffers: list[Buffer] = []
    parts: list[Buffer] = [head, INT32.pack(len(topics))]
    for topic, partitions in topics:
        parts.append(encode_string(str(topic)) + INT32.pack(len(partitions)))
        for partition in partitions:
            records = partition[RECORDS]
            parts.append(encode_old_partition(version, partition))
            parts.append(INT32.pack(-1 if records is None else len(records)))
            if records is not None and len(records) >= UNCOPIED_MIN:
                buffers += [b"".join(parts), records]
                parts = []
            elif records is not None:
                parts.append(records)
    buffers.append(b"".join(parts))
    return buffers


def encode_old_partition(version: int, partition: FetchedPartition) -> bytes:
    """A partition up to its records."""
    index, error, watermark, stable, start, aborted, preferred, *_ = partition
    if version >= 5:
        head = FETCHED_V5.pack(index, error, watermark, stable, start)
    else:
        head = FETCHED_V4.pack(index, error, watermark, stable)
    head += INT32.pack(-1 if aborted is None else len(aborted))
    head += b"".join([ABORTED.pack(*transaction) for transaction in aborted or ()])
    return head + INT32.pack(preferred) if version >= 11 else head
