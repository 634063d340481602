"""What the driver asks the cluster: which partitions there are, and which offsets a bound is."""

import logging
import re
from collections.abc import Collection, Mapping

from ottla.pipeline.source.bounds import Bound, answered, questions, too_late
from ottla.pipeline.source.errors import OffsetError
from ottla.pipeline.source.offsets import listed
from ottla.pipeline.source.options import SourceOptions, Topics
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.metadata import Topic, TopicPartition
from ottla.pipeline.wire.offsets import EARLIEST, LATEST, list_offsets

_log = logging.getLogger("ottla.pipeline.source")
_told: set[str] = set()


def tell(lines: Collection[str]) -> None:
    """Says each line once in this process."""
    for line in lines:
        if line not in _told:
            _told.add(line)
            _log.warning("ottla: %s", line)


def chosen(topics: Topics, found: Mapping[str, Topic]) -> dict[str, Topic]:
    """The topics of a query among those that exist. Internal ones only where they are named."""
    if topics.pattern:
        matches = re.compile(topics.pattern).fullmatch
        return {name: topic for name, topic in sorted(found.items()) if matches(name) and not topic.is_internal}
    return {name: topic for name, topic in sorted(found.items()) if name in (topics.asked or ())}


def partitions_of(topics: Topics, found: Mapping[str, Topic]) -> list[TopicPartition]:
    if topics.assigned is not None:
        return [
            (name, partition)
            for name, topic in found.items()
            for partition in topics.assigned[name]
            if partition in topic.partitions
        ]
    return [(name, partition) for name, topic in found.items() for partition in topic.partitions]


class Asking:
    """The questions of one query."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self.ids: dict[str, bytes] = {}

    def partitions(self) -> list[TopicPartition]:
        """Those that exist of what the query reads; their topics' ids are in ``ids`` then."""
        found = chosen(self._options.topics, self._cluster.topics(self._options.topics.asked))
        self.ids = {name: topic.id for name, topic in found.items()}
        return partitions_of(self._options.topics, found)

    def existing(self) -> list[TopicPartition]:
        """Like `partitions`. Raises OffsetError when a topic or partition that was named does not exist."""
        partitions = self.partitions()
        topics = self._options.topics
        missing = set(topics.asked or ()) - self.ids.keys()
        if missing:
            raise OffsetError(f"there is no topic {listed(missing)}")
        if topics.assigned is not None:
            wanted = {(name, number) for name, numbers in topics.assigned.items() for number in numbers}
            absent = wanted - set(partitions)
            if absent:
                raise OffsetError(f"there is no partition {listed(f'{name}-{number}' for name, number in absent)}")
        if not partitions:
            raise OffsetError(f"no topic matches subscribePattern={topics.pattern}")
        return partitions

    def start(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Raises OffsetError where a time has no record as young, unless the query begins at the end there."""
        bound = self._options.starting
        offsets, late = self._offsets(bound, partitions)
        if late and not self._options.begins_late:
            raise too_late(bound, late)
        return offsets | self.ends(late)

    def end(self, bound: Bound, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where nothing is as young as the time, the end of the partition."""
        offsets, late = self._offsets(bound, partitions)
        return offsets | self.ends(late)

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._listed(dict.fromkeys(partitions, LATEST))

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def at_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset of a time (ms) or after, -1 where there is none."""
        return self._listed(times)

    def _offsets(
        self, bound: Bound, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
        return answered(bound, self._listed(questions(bound, partitions)))

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = list_offsets(self._cluster, wanted) if wanted else {}
        return {which: listed.offset for which, listed in found.items()}
