"""The topics of a consumer group: which there are, and whether they are still those for which its target was computed."""

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Protocol

_SHAPE = Struct(">16sq")
_HASH_BYTES = 8


class GroupTopics(Protocol):
    """Which topics there are."""

    def id_of(self, name: str) -> bytes | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, topic_id: bytes) -> int: ...

    def names(self) -> list[str]:
        """Of all topics, as a new list."""
        ...

    @property
    def version(self) -> int:
        """Of the metadata: the offset of its last record."""
        ...


def metadata_hash(names: Iterable[str], topics: GroupTopics) -> int:
    """Of the ids and numbers of partitions of those that exist; every node computes the same. 0 where there is none. Racks are left out:
    no assignor looks at them."""
    shapes = []
    for name in names:
        topic_id = topics.id_of(name)
        if topic_id is not None:
            shapes.append(_SHAPE.pack(topic_id, topics.partition_count(topic_id)))
    if not shapes:
        return 0
    digest = blake2b(b"".join(sorted(shapes)), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "big", signed=True)


class SubscribedIds:
    """The ids of a subscription's topics, asked for one at a time."""

    __slots__ = ("_names", "_topics")

    def __init__(self, names: frozenset[str], topics: GroupTopics) -> None:
        self._names = names
        self._topics = topics

    def __contains__(self, topic_id: object) -> bool:
        return isinstance(topic_id, bytes) and self._topics.name_of(topic_id) in self._names

    def all(self) -> frozenset[bytes]:
        return frozenset(each for name in self._names if (each := self._topics.id_of(name)) is not None)
