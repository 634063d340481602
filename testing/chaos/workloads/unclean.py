"""The unclean elections of a run, as the cluster's own metadata tells them, with what each may have lost."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.log.batch import headers
from ottla.log.names import METADATA_PARTITION
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.archive import DirectoryArchive
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.history import effective_records
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import NO_LEADER, RECOVERING, PartitionView
from ottla.runtime.lmdb_store import LmdbStore
from ottla.runtime.real_disk import RealDisk
from ottla.testing.chaos.workloads.clients import Counted
from ottla.testing.chaos.workloads.final_reads import segments

SLACK_MS = 1_000
"""A leader that is deposed may not know it for a moment."""


class Election(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    time_ms: int


def elections(batches: Iterable[CommittedBatch], start: MetadataImage | None = None) -> Iterator[Election]:
    """Of a leader that was not in sync and not eligible. ``start``: what a snapshot says of all before."""
    image = start.fork() if start is not None else MetadataImage()
    for moment in effective_records(batches):
        delta = MetadataDelta()
        image.apply(moment.record, delta)
        for (topic_id, index), before in delta.partitions.items():
            after = image.partition(topic_id, index)
            if before is not None and after is not None and _is_unclean(before, after):
                name = image.topics_by_id[topic_id].name
                yield Election(name, index, after.leader_epoch, moment.time_ms)


def _is_unclean(before: PartitionView, after: PartitionView) -> bool:
    is_elected = after.leader != NO_LEADER and after.leader_epoch != before.leader_epoch
    return is_elected and after.leader_recovery_state == RECOVERING and after.leader not in before.isr


def note(
    directories: Mapping[int, Sequence[Path]], topics: Sequence[str], history: Counted, known: Mapping[str, int]
) -> None:
    """All of the topics, into a history of this machine's clock. ``known``: by topic-partition, up to where the new leader's log was that of
    those before it; where nobody found out while they were there, it is taken to be where it began to write."""
    paths = [path for found in directories.values() for path in found]
    logs = [path / str(METADATA_PARTITION) for path in paths if (path / str(METADATA_PARTITION)).is_dir()]
    archive = max(
        (DirectoryArchive(RealDisk(), str(each), lambda path: LmdbStore(path, read_only=True)) for each in logs),
        key=lambda each: each.end_offset,
    )
    since_boot = time.monotonic_ns() - time.time_ns()
    for each in elections((batch.decoded() for batch in archive.batches()), archive.start):
        if each.topic in topics:
            at = each.time_ms * 1_000_000 + since_boot
            replicas = [path / f"{each.topic}-{each.partition}" for path in paths]
            kept = min((_begins_at(path, each.leader_epoch) for path in replicas if path.is_dir()), default=0)
            kept = min(kept, known.get(f"{each.topic}-{each.partition}", kept))
            history.unclean(each.topic, each.partition, at, at + SLACK_MS * 1_000_000, kept)


def _begins_at(replica: Path, leader_epoch: int) -> int:
    """Where a leader of that epoch or a later one wrote first: what stands before that was kept. The end, if none wrote."""
    following = 0
    for path in segments(replica):
        for _, header in headers(path.read_bytes()):
            if header.leader_epoch >= leader_epoch:
                return header.base_offset
            following = header.next_offset
    return following
