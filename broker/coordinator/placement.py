"""Which partition of an internal topic keeps a key: the absolute value of Java's hash of its name, as in Kafka."""

from functools import lru_cache

from ottla.quorum.metadata.image import MetadataImage

_INT32 = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_REMEMBERED = 4096
_REMEMBERED_LENGTH_MAX = 128
"""Longer names are nobody's habit, and may be 32 KB."""


def java_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned number: over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _INT32
    return value


def partition_of(key: str, count: int) -> int:
    """The place of a group or a transactional id among ``count`` partitions."""
    return (_remembered(key) if len(key) <= _REMEMBERED_LENGTH_MAX else _absolute(key)) % count


def _absolute(key: str) -> int:
    """Kafka's `Utils.abs`: of the least number, which has no absolute value, 0."""
    value = java_hash(key)
    return value if value <= _POSITIVE else -value & _POSITIVE


_remembered = lru_cache(_REMEMBERED)(_absolute)


def coordinator_of(image: MetadataImage, topic: str, key: str) -> int | None:
    """The broker that leads the key's partition of an internal topic, if there is one."""
    found = image.topics_by_name.get(topic)
    if found is None or not found.partitions:
        return None
    leader_id = found.partitions[partition_of(key, len(found.partitions))].leader
    return leader_id if leader_id in image.brokers else None
