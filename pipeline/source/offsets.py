"""A query's offsets: the JSON of Spark's Kafka connector, with the topics' ids beside it. Values only.

``{"orders": {"0": 23, "1": 5}, "orders:9xQ...": {}}``. No topic can have a colon in its name, and a key without
partitions has no offsets: the JVM's connector reads the first entry and nothing else, so that a checkpoint can move
from one to the other. Spark compares offsets by their text: the keys are sorted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.pipeline.source.errors import OffsetError
from ottla.pipeline.wire.metadata import TopicPartition
from ottla.runtime.identifiers import ZERO_ID, id_from_text, id_to_text

_MARK = ":"


@dataclass(frozen=True)
class Offsets:
    """The next offset to read by partition, and the id of each topic that has one."""

    next: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.next}


def from_json(found: Mapping[str, Any]) -> Offsets:
    """Raises OffsetError for what is not the offsets of topics."""
    offsets: dict[TopicPartition, int] = {}
    ids: dict[str, bytes] = {}
    try:
        for topic, numbers in found.items():
            name, mark, id_text = topic.partition(_MARK)
            if mark:
                ids[name] = id_from_text(id_text)
            offsets |= {(topic, int(partition)): int(number) for partition, number in numbers.items()}
    except (AttributeError, TypeError, ValueError):
        raise OffsetError(
            f"the checkpoint's offset {found} is not of a topic: give the query a checkpoint of its own"
        ) from None
    return Offsets(offsets, ids)


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.next.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    for topic in list(found):
        if offsets.ids.get(topic, ZERO_ID) != ZERO_ID:
            found[f"{topic}{_MARK}{id_to_text(offsets.ids[topic])}"] = {}
    return dict(sorted(found.items()))


def made_anew(before: Offsets, now: Mapping[str, bytes]) -> list[str]:
    """Topics that have another id now than before; where one of them is not known, nobody can tell."""
    return sorted(
        topic
        for topic, topic_id in before.ids.items()
        if topic in now and ZERO_ID not in (topic_id, now[topic]) and topic_id != now[topic]
    )


def listed(topics: Iterable[str], most: int = 5) -> str:
    names = sorted(topics)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
