"""The driver's part of a stream: which offsets come next, and which task reads what. One lives as long as its query."""

import time
from collections.abc import Collection, Mapping
from typing import Any

from ottla.pipeline.source.asking import Asking, tell
from ottla.pipeline.source.bounds import Bound
from ottla.pipeline.source.errors import LossError
from ottla.pipeline.source.limits import at_most_bytes, at_most_offsets, available, is_enough
from ottla.pipeline.source.offsets import Offsets, from_json, to_json
from ottla.pipeline.source.options import SourceOptions
from ottla.pipeline.source.planning import Task, stream_tasks
from ottla.pipeline.source.probing import bytes_per_offset
from ottla.pipeline.source.progress import begins_late, changes, check_same_query
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.metadata import TopicPartition
from ottla.pipeline.wire.reading import Range
from ottla.runtime.identifiers import ZERO_ID

Json = Mapping[str, Any]

PROBED_FOR_S = 60.0
"""How long a partition's bytes by offset are taken for what they were."""

MISSED_FOR_S = 2.0
USUAL_BYTES = 100.0
"""Of a record, where nothing is known."""


class Stream:
    """What Spark asks a streaming source."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._asking = Asking(cluster, options)
        self._target: Offsets | None = None
        self._ended: dict[str, Any] | None = None
        self._ending: dict[TopicPartition, int] = {}
        self._newest = Offsets()
        self._went_on_s: float | None = None
        self._densities: dict[TopicPartition, tuple[float, float]] = {}
        tell(options.told)

    def initial(self) -> dict[str, Any]:
        """Where a new query begins."""
        partitions = self._asking.existing()
        self._ended = to_json(Offsets(self._asking.start(partitions), self._asking.ids))
        return self._ended

    def prepare_available_now(self) -> None:
        """What is there now is all that this run reads."""
        self._target = self._now()

    def latest(self, start_json: Json | None, *, unlimited: bool = False) -> dict[str, Any]:
        """Where the next batch ends: at its start when there is nothing, or too little yet, to read.

        Where Spark (before 4.2) does not say where it starts, it is where the last one ended; a query that begins again
        has none, and its first batch no limit.
        """
        start_json = self._ended if start_json is None else start_json
        start = from_json(start_json or {})
        now = self._newest = self._available(start)
        if start_json is None:
            return to_json(now)
        check_same_query(start, now.topics, self._described())
        change = changes(start, now)
        self._lose(change.lost)
        begins = self._begins(start, change.fresh)
        ends = self._limited(begins, now.next, unlimited)
        if not change.fresh and not change.lost and not available(begins, ends):
            return dict(start_json)
        return to_json(Offsets(ends, now.ids))

    def newest(self) -> dict[str, Any] | None:
        """The ends that were last seen, for the progress of the query."""
        return to_json(self._newest) if self._newest.next else None

    def tasks(self, start_json: Json, end_json: Json) -> list[Task]:
        """What each task reads of a batch: the same each time the batch is planned."""
        start, end = from_json(start_json), from_json(end_json)
        self._ended = dict(end_json)
        change = changes(start, end)
        begins = self._begins(start, change.fresh)
        ranges = [
            Range(*which, begins[which], last, end.ids.get(which[0], ZERO_ID))
            for which, last in end.next.items()
            if begins[which] < last
        ]
        options = self._options
        return stream_tasks(
            ranges, least=options.tasks_min, most=options.tasks_max, records_max=options.task_records_max
        )

    # -- how ------------------------------------------------------------------------------------------------------

    def _available(self, start: Offsets) -> Offsets:
        """What a batch from there may read: nothing beyond the query's end, though it began behind that."""
        if self._target is None:
            now = self._now(start.next)
        elif start.next.keys() <= self._target.next.keys():
            now = self._target
        else:
            now = self._target = self._now(start.next)  # nobody knew what to expect when it was looked for
        if self._options.ending is None:
            return now
        ends = {which: min(end, max(self._ending[which], start.next.get(which, 0))) for which, end in now.next.items()}
        return Offsets(ends, now.ids)

    def _now(self, expected: Collection[TopicPartition] = ()) -> Offsets:
        """What there is. Of what was there a broker may know nothing for a moment, one that has just started: so it is
        asked again before something is taken for gone."""
        partitions: list[TopicPartition] = []
        for _ in self._cluster.attempts(MISSED_FOR_S):
            partitions = self._asking.partitions()
            if set(expected) <= set(partitions):
                break
        ends = self._asking.ends(partitions)
        if self._options.ending is not None:
            self._ending |= self._ends_of_new(self._options.ending, partitions)
        return Offsets(ends, dict(self._asking.ids))

    def _ends_of_new(self, bound: Bound, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end of which that is not known yet: asked once, whatever comes later."""
        new = [which for which in partitions if which not in self._ending]
        if new and self._ending and bound.values:
            return dict.fromkeys(new, 0)  # it came after the query began, and the option does not name it
        return self._asking.end(bound, new) if new else {}

    def _begins(self, start: Offsets, fresh: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition is read from: new ones from their beginning, which is the first offset there is."""
        if not fresh:
            return dict(start.next)
        beginnings = self._asking.beginnings(fresh)
        self._lose(begins_late(beginnings))
        return {**start.next, **beginnings}

    def _limited(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], unlimited: bool
    ) -> dict[TopicPartition, int]:
        options, sizes = self._options, available(begins, ends)
        if unlimited or not sizes:
            return dict(ends)
        now_s = time.monotonic()
        waited_ms = 0.0 if self._went_on_s is None else (now_s - self._went_on_s) * 1000
        self._went_on_s = now_s if self._went_on_s is None else self._went_on_s
        bounded = self._target is not None or options.ending is not None
        if not is_enough(
            sum(sizes.values()), options.trigger_offsets_min, waited_ms, options.trigger_delay_ms, ends=bounded
        ):
            return {which: begins.get(which, last) for which, last in ends.items()}
        self._went_on_s = now_s
        limited = dict(ends)
        if options.trigger_offsets_max is not None:
            limited = at_most_offsets(begins, limited, options.trigger_offsets_max)
        if options.trigger_bytes_max is not None:
            limited = at_most_bytes(begins, limited, options.trigger_bytes_max, self._bytes_each(begins, sizes))
        return limited

    def _bytes_each(
        self, begins: Mapping[TopicPartition, int], sizes: Collection[TopicPartition]
    ) -> dict[TopicPartition, float]:
        now_s = time.monotonic()
        old = [which for which in sizes if now_s - self._densities.get(which, (0.0, -PROBED_FOR_S))[1] >= PROBED_FOR_S]
        if old:
            found = bytes_per_offset(self._cluster, {which: begins[which] for which in old})
            self._densities |= {which: (density, now_s) for which, density in found.items()}
        known = {which: self._densities[which][0] for which in sizes if which in self._densities}
        usual = sum(known.values()) / len(known) if known else USUAL_BYTES
        return {which: known.get(which, usual) for which in sizes}

    def _lose(self, lost: list[str]) -> None:
        if lost and self._options.fails_on_loss:
            raise LossError("; ".join(lost))
        tell(lost)

    def _described(self) -> str:
        topics = self._options.topics
        return topics.pattern or ", ".join(topics.asked or ())
