"""What a stream's offsets say beside what the cluster has now: what to read, and what is gone. Values only."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.pipeline.source.errors import OffsetError
from ottla.pipeline.source.offsets import Offsets, listed, made_anew
from ottla.pipeline.wire.metadata import TopicPartition


class Changes(NamedTuple):
    """Since ``start``: partitions that are to be read from their beginning, and sentences about what is lost."""

    fresh: list[TopicPartition]
    lost: list[str]


def changes(start: Offsets, end: Offsets) -> Changes:
    """Between the offsets where a batch begins and those where it ends, or the cluster now.

    A topic that was made anew is another: its offsets begin at its beginning, and what was left of the old is lost.
    """
    anew = set(made_anew(start, end.ids))
    fresh = [which for which in end.next if which not in start.next or which[0] in anew]
    gone = [which for which in start.next if which not in end.next and which[0] not in anew]
    back = [
        f"{topic}-{partition} ends at {end.next[topic, partition]} now, and was read up to {offset}"
        for (topic, partition), offset in sorted(start.next.items())
        if topic not in anew and end.next.get((topic, partition), offset) < offset
    ]
    lost = [f"topic {topic} was deleted and made anew" for topic in sorted(anew)]
    if gone:
        lost.append(f"{listed(f'{topic}-{partition}' for topic, partition in gone)} does not exist any more")
    return Changes(sorted(fresh), lost + back)


def check_same_query(start: Offsets, topics: Collection[str], described: str) -> None:
    """Raises OffsetError when a checkpoint is of other topics altogether."""
    if start.topics and topics and not start.topics & set(topics):
        raise OffsetError(
            f"the checkpoint is of topic {listed(start.topics)}, and this query reads {described}: "
            "give it a checkpoint of its own"
        )


def begins_late(beginnings: Mapping[TopicPartition, int]) -> list[str]:
    """Sentences about partitions that came while the query ran, and had lost records before they were read."""
    return [
        f"{topic}-{partition} is new and begins at {offset}: records before were deleted unread"
        for (topic, partition), offset in sorted(beginnings.items())
        if offset > 0
    ]
