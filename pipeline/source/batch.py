"""The driver's part of a batch read: which offsets, and which task reads what."""

from collections.abc import Mapping

from ottla.pipeline.source.asking import Asking, tell
from ottla.pipeline.source.bounds import Bound, Kind
from ottla.pipeline.source.errors import LossError
from ottla.pipeline.source.filters import Wanted, narrowed
from ottla.pipeline.source.options import SourceOptions
from ottla.pipeline.source.planning import Task, batch_tasks, cut_by_bytes
from ottla.pipeline.source.probing import samples_of
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.metadata import TopicPartition
from ottla.pipeline.wire.reading import Range
from ottla.runtime.identifiers import ZERO_ID


def batch_plan(cluster: Cluster, options: SourceOptions, wanted: Wanted | None = None) -> list[Task]:
    """What each task reads. Raises OffsetError, LossError."""
    tell(options.told)
    asking = Asking(cluster, options)
    every = asking.existing()  # that the options' offsets name, whatever is wanted of them
    partitions = [which for which in every if wanted is None or wanted.takes(which)]
    bound = options.ending or Bound(Kind.LATEST, "endingOffsets")
    starts, ends = asking.start(every), asking.end(bound, every)
    starts, ends = (
        _within(asking, options, {which: offsets[which] for which in partitions}) for offsets in (starts, ends)
    )
    if wanted is not None:
        starts, ends = narrowed(wanted, starts, ends, asking.at_time)
    ranges = [
        Range(*which, starts[which], ends[which], asking.ids.get(which[0], ZERO_ID))
        for which in partitions
        if starts[which] < ends[which]
    ]
    samples = samples_of(cluster, ranges, options.task_bytes)
    pieces = [piece for each in ranges for piece in cut_by_bytes(each, samples[each], options.task_bytes)]
    return batch_tasks(
        pieces,
        least=options.tasks_min,
        most=options.tasks_max,
        records_max=options.task_records_max,
        task_bytes=options.task_bytes,
    )


def _within(asking: Asking, options: SourceOptions, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Offsets that the logs have; what was asked for outside of them is lost."""
    first, last = asking.beginnings(offsets), asking.ends(offsets)
    lost = [
        f"{topic}-{partition} has offsets {first[topic, partition]} up to {last[topic, partition]}, not {offset}"
        for (topic, partition), offset in sorted(offsets.items())
        if not first[topic, partition] <= offset <= last[topic, partition]
    ]
    if lost and options.fails_on_loss:
        raise LossError("; ".join(lost))
    tell(lost)
    return {which: min(max(offset, first[which]), last[which]) for which, offset in offsets.items()}
