"""The record of a committed offset, packed at once, and read: a busy coordinator writes thousands of them a second, and whoever takes
over from one that died reads them all while its groups wait.

The generated codec is the reference, at several times the cost: a test holds both to the same bytes.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError

from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import encode_varint

_KIND_LENGTH = Struct(">hh").pack  # of the key: 1 is an offset's
_LENGTH = Struct(">h").pack
_PARTITION = Struct(">i").pack
_VALUE = Struct(">hqi").pack  # version 4: offset, leader epoch
_TIME_TAGS = Struct(">qBBB16s").pack  # commit time, one tag: number 0, 16 bytes, the topic's id
_TIME_NO_TAGS = Struct(">qB").pack

_NUMBER = Struct(">h").unpack_from
_INDEX = Struct(">i").unpack_from
_VALUE_SIZE = Struct(">hqiB").unpack_from
_VALUE_BYTES = 14
_TIME_TAGS_OF = Struct(">qBBB16s").unpack_from
_TAGS_BYTES = 27
_TIME_NO_TAGS_OF = Struct(">qB").unpack_from
_NO_TAGS_BYTES = 9
_SHORTEST = _VALUE_BYTES + 1 + _NO_TAGS_BYTES
_TOPIC_BYTES_MAX = 249

OFFSET_KEY = 1
VALUE_VERSION = 4
NO_ID = bytes(16)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """`OffsetCommitKey`. Raises WireError."""
    group_bytes, topic_bytes = group.encode(), topic.encode()
    try:
        head = _KIND_LENGTH(OFFSET_KEY, len(group_bytes)) + group_bytes
        return head + _LENGTH(len(topic_bytes)) + topic_bytes + _PARTITION(partition)
    except StructError as error:
        raise WireError(f"cannot encode the key of a committed offset: {error}") from error


def offset_value(offset: int, leader_epoch: int, metadata: str, commit_time_ms: int, topic_id: bytes) -> bytes:
    """`OffsetCommitValue` of version 4. Raises WireError."""
    metadata_bytes = metadata.encode()
    try:
        head = _VALUE(VALUE_VERSION, offset, leader_epoch) + encode_varint(len(metadata_bytes) + 1) + metadata_bytes
        if topic_id == NO_ID:
            return head + _TIME_NO_TAGS(commit_time_ms, 0)
        return head + _TIME_TAGS(commit_time_ms, 1, 0, len(topic_id), topic_id)
    except StructError as error:
        raise WireError(f"cannot encode a committed offset: {error}") from error


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic, partition. Raises WireError."""
    try:
        group_end = 4 + _NUMBER(key, 2)[0]
        topic_end = group_end + 2 + _NUMBER(key, group_end)[0]
        partition: int = _INDEX(key, topic_end)[0]
        if not 4 <= group_end <= topic_end - 2:
            raise WireError("the key of a committed offset has a name without a length")
        return str(key[4:group_end], "utf-8"), _topic(key[group_end + 2 : topic_end]), partition
    except (StructError, UnicodeDecodeError) as error:
        raise WireError(f"bytes are not the key of a committed offset: {error}") from error


def read_offset_value(value: bytes) -> tuple[int, int, str, int, bytes] | None:
    """What `offset_value` wrote; None for other versions, longer metadata and more tags, which the generated codec reads."""
    if len(value) < _SHORTEST:
        return None
    version, offset, leader_epoch, size = _VALUE_SIZE(value)
    end = _VALUE_BYTES + size
    if version != VALUE_VERSION or not 0 < size < 128 or len(value) - end not in (_TAGS_BYTES, _NO_TAGS_BYTES):
        return None
    topic_id = NO_ID
    if len(value) - end == _TAGS_BYTES:
        time_ms, tags, tag, id_size, topic_id = _TIME_TAGS_OF(value, end)
        if (tags, tag, id_size) != (1, 0, len(NO_ID)):
            return None
    else:
        time_ms, tags = _TIME_NO_TAGS_OF(value, end)
        if tags:
            return None
    try:
        return offset, leader_epoch, str(value[_VALUE_BYTES + 1 : end], "utf-8"), time_ms, topic_id
    except UnicodeDecodeError:
        return None


def _topic(name: bytes) -> str:
    return _known(name) if len(name) <= _TOPIC_BYTES_MAX else str(name, "utf-8")


@lru_cache(1024)
def _known(name: bytes) -> str:
    """One string for all offsets of a topic."""
    return str(name, "utf-8")
