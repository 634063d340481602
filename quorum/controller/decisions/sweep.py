"""A walk over very many partitions, a bounded piece at a time, that forgets none of them."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import PartitionView

LOOKS_MAX = 10_000
"""Partitions looked at in one piece: 2 to 4 ms."""
CHANGES_MAX = 250
"""Partitions changed in one piece: with their replay and commit 5 to 8 ms."""
AGAIN_MAX = 10_000

Concerns = Callable[[PartitionView], bool]
Change = Callable[[PartitionKey, PartitionView], Record | None]


class Step(NamedTuple):
    """A piece of a larger change. ``is_last``: once these records are replayed there is nothing left of it."""

    records: list[Record]
    is_last: bool


class Sweep:
    """Goes once over the partitions of some topics, and again over those that change meanwhile and concern it.

    What it asked to change it looks at again in the next piece: records that are never replayed are decided anew. So it is no
    state of the controller's but a shortcut, and a new controller begins a new one.
    """

    def __init__(self, image: MetadataImage, topics: Iterable[bytes], concerns: Concerns) -> None:
        """``concerns``: whether a partition may need the change at all; asked of every partition, so it must be quick."""
        self.concerns = concerns
        self._image = image
        self._ahead = _partitions(image, list(topics))
        self._again: dict[PartitionKey, None] = {}

    def changed(self, key: PartitionKey, after: PartitionView) -> bool:
        """A partition is another now, perhaps one that lies behind. False: too many are, and it is better to begin anew."""
        if self.concerns(after):
            self._again[key] = None
        return len(self._again) <= AGAIN_MAX

    def step(self, change: Change, changes_max: int) -> Step:
        """The next piece: at most so many changes, and a bounded time."""
        records: list[Record] = []
        for looks, key in enumerate(chain(list(self._again), self._ahead), 1):
            partition = self._image.partition(*key)
            record = change(key, partition) if partition is not None and self.concerns(partition) else None
            if record is not None:
                records.append(record)
                self._again[key] = None
            else:
                self._again.pop(key, None)
            if len(records) == changes_max or looks == LOOKS_MAX:
                return Step(records, is_last=False)
        return Step(records, is_last=True)


def _partitions(image: MetadataImage, topics: Iterable[bytes]) -> Iterator[PartitionKey]:
    """A topic's partitions, as there are when its turn comes. One that is created later is told of as a change."""
    for topic_id in topics:
        topic = image.topics_by_id.get(topic_id)
        for index in list(topic.partitions) if topic is not None else ():
            yield topic_id, index
