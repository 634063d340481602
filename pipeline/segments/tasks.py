"""What each task reads."""

import re
from collections.abc import Iterable, Sequence

from ottla.pipeline.segments.errors import SegmentsError
from ottla.pipeline.segments.options import SegmentsOptions
from ottla.pipeline.segments.planning import choose, stretches
from ottla.pipeline.segments.reading import Stretch
from ottla.pipeline.segments.replicas import INTERNAL_TOPICS, METADATA_TOPIC, Replica, find_replicas

FILE_COST_BYTES = 256 << 10
"""What opening a file costs, in bytes that are read meanwhile."""


def plan(options: SegmentsOptions) -> list[list[Stretch]]:
    """The stretches of each task. Raises SegmentsError where nothing is to be read."""
    replicas, choice = find_replicas(options.paths), options.choice
    if options.pattern is not None:
        choice = choice._replace(topics=_matching(options.pattern, {each.topic for each in replicas}))
    chosen = choose(replicas, choice)
    missing = sorted((choice.topics or frozenset()) - {replica.topic for replica, _ in chosen})
    if missing or not chosen:
        raise SegmentsError(f"{', '.join(missing) or 'no topic'} in {', '.join(options.paths)}; {_known(replicas)}")
    total = sum(replica.size_bytes for replica, _ in chosen)
    split_bytes = options.split_bytes
    if options.min_partitions > 1:
        split_bytes = max(1, min(split_bytes, total // options.min_partitions))
    found = [part for replica, watermark in chosen for part in stretches(replica, watermark, choice, split_bytes)]
    return pack(found, split_bytes) or [[]]


def _matching(pattern: re.Pattern[str], topics: Iterable[str]) -> frozenset[str]:
    """Internal ones are in no consumer's pattern: only the whole name means one."""
    return frozenset(
        each for each in topics if pattern.fullmatch(each) and (each not in INTERNAL_TOPICS or each == pattern.pattern)
    )


def _known(replicas: Sequence[Replica]) -> str:
    names = sorted({replica.topic for replica in replicas} - {METADATA_TOPIC})
    return f"there are {', '.join(names)}" if names else "there is none"


def pack(found: Sequence[Stretch], task_bytes: int) -> list[list[Stretch]]:
    """The stretches in tasks of about as many bytes, in order: many small ones are one task."""
    tasks: list[list[Stretch]] = []
    room = 0
    for stretch in found:
        cost = stretch.end - stretch.start + FILE_COST_BYTES
        if not tasks or room < cost // 2:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(stretch)
        room -= cost
    return tasks
