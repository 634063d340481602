"""How many bytes lie where in a log, by looking at a little of it: Kafka has no request for that.

What is looked at are the batches that a small Fetch gives at an offset. Where compaction left holes the batch comes
from behind the hole, and its bytes are counted for the offsets of both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.pipeline.source.planning import Sample, estimated_bytes, sample_points, size
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.codec import Body
from ottla.pipeline.wire.connection import Connection
from ottla.pipeline.wire.fetch import BY_NAME_MOST
from ottla.pipeline.wire.metadata import TopicPartition
from ottla.pipeline.wire.offsets import by_topic
from ottla.pipeline.wire.reading import OldFormatError, Range, batches

PROBE_BYTES = 64 << 10
AT_ONCE = 128
FEW_LOOKS, MANY_LOOKS = 4, 16
MANY_OFFSETS = 10_000
"""Below this, one look is enough."""


def bytes_per_offset(cluster: Cluster, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """About how many bytes an offset takes there. Partitions of which nothing is seen are missing."""
    samples = probe(cluster, at)
    return {which: max(1.0, found.bytes / (found.next - found.asked)) for which, found in samples.items()}


def samples_of(cluster: Cluster, ranges: Sequence[Range], task_bytes: int) -> dict[Range, list[Sample]]:
    """What the ranges look like: the more looks, the more a range may have to be cut."""
    few = {each: sample_points(each, FEW_LOOKS if size(each) > MANY_OFFSETS else 1) for each in ranges}
    found = _look(cluster, few)
    large = [each for each in ranges if size(each) > MANY_OFFSETS]
    cut = [each for each in large if estimated_bytes(each, found[each]) > task_bytes // 2]
    return found | _look(cluster, {each: sample_points(each, MANY_LOOKS) for each in cut})


def _look(cluster: Cluster, looks: Mapping[Range, list[int]]) -> dict[Range, list[Sample]]:
    found: dict[Range, list[Sample]] = {each: [] for each in looks}
    left = {each: list(points) for each, points in looks.items()}
    while any(left.values()):
        # A request names a partition once.
        now = {each.which: (each, points.pop(0)) for each, points in left.items() if points}
        for which, sample in probe(cluster, {which: offset for which, (_, offset) in now.items()}).items():
            found[now[which][0]].append(sample)
    return found


def probe(cluster: Cluster, at: Mapping[TopicPartition, int], most: int = PROBE_BYTES) -> dict[TopicPartition, Sample]:
    """What lies at these offsets; an offset that is gone, or has nothing behind it, gives nothing."""
    every, found = list(at.items()), dict[TopicPartition, Sample]()
    for first in range(0, len(every), AT_ONCE):
        found |= _probe(cluster, dict(every[first : first + AT_ONCE]), most)
    return found


def _probe(cluster: Cluster, at: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, Sample]:
    found: dict[TopicPartition, Sample] = {}

    def make(_connection: Connection, partitions: list[TopicPartition]) -> Body:
        topics = [
            {
                "topic": topic,
                "partitions": [
                    {"partition": number, "fetch_offset": at[topic, number], "partition_max_bytes": most}
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(partitions).items()
        ]
        return {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": most * len(at), "topics": topics}

    def take(answer: Any) -> dict[TopicPartition, int]:
        for topic in answer.responses:
            for part in topic.partitions:
                which = (topic.topic, part.partition_index)
                sample = None if part.error_code else sample_of(at[which], part.records)
                if sample is not None:
                    found[which] = sample
        return {
            (topic.topic, part.partition_index): part.error_code
            for topic in answer.responses
            for part in topic.partitions
        }

    cluster.ask_leaders("Fetch", at, make, take, most_version=BY_NAME_MOST)
    return found


def sample_of(asked: int, records: memoryview | None) -> Sample | None:
    """What an answer to a Fetch at ``asked`` says about the bytes of the offsets from there; a part of a batch counts."""
    next_offset, seen = asked, 0.0
    try:
        for base, last, size in batches(records or memoryview(b"")):
            inside = (last + 1 - max(base, asked)) / (last + 1 - base)
            seen += size * max(0.0, inside)
            next_offset = max(next_offset, last + 1)
    except OldFormatError:
        return None
    return Sample(asked, next_offset, max(1, round(seen))) if next_offset > asked else None
