"""Hangs the invariants on the servers' own methods, for the length of a run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from ottla.broker.directories import METADATA_DIRECTORY
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.log.compaction.manager import LogCleaner
from ottla.log.log import Log
from ottla.log.segments.segment import Segment
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.store import ImageStore
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.runtime.disk import Disk
from ottla.testing.simulation.invariants import Invariants

_UNCHANGED = nullcontext()
After = Callable[..., None]
Hook = tuple[type, str, After]


@contextmanager
def observed(invariants: Invariants) -> Iterator[None]:
    """Each hook runs in the step of the node that changed something, right after the change. What it reads does not fail."""
    loop, cluster = invariants.cluster.loop, invariants.cluster

    def node() -> int:
        return cluster.number_of(loop.current_process.node)

    def sound() -> AbstractContextManager[None]:
        platter = loop.current_process.node.platter
        return _UNCHANGED if platter.is_sound else platter.sound()

    def moved(partition: Partition, result: object, offset: object) -> None:
        partition.log.make_whole()  # it may have to be read anew first: then it is now
        invariants.high_watermark_moved(node(), partition)

    def led(partition: Partition, result: bool, *args: object, **kwargs: object) -> None:
        if result:
            invariants.partition_led(node(), partition)

    hooks: list[Hook] = [
        *_quorum_hooks(invariants, node),
        *_log_hooks(invariants, node),
        (Partition, "_committed", moved),
        (Partition, "learn_high_watermark", moved),
        (Partition, "lead", led),
        (ReplicaManager, "_create", lambda manager, result, replica: invariants.hosted(node(), result)),
        (ReplicaManager, "_drop", lambda manager, result, *key: invariants.dropped(node(), key)),
    ]
    with ExitStack() as stack:
        for owner, name, after in hooks:
            stack.enter_context(patch.object(owner, name, _followed(getattr(owner, name), after, sound)))
        # Before the publishers: what they do is judged by the metadata that they act on.
        tell_all = MetadataLoader._tell_all

        def published(loader: MetadataLoader, delta: MetadataDelta) -> None:
            invariants.image_moved(loader.image, delta)
            tell_all(loader, delta)

        stack.enter_context(patch.object(MetadataLoader, "_tell_all", published))
        open_log = Log.open

        def opened(disk: Disk, directory: str, *args: Any, **kwargs: Any) -> Log:
            log = open_log(disk, directory, *args, **kwargs)
            if METADATA_DIRECTORY not in directory:
                with sound():
                    invariants.log_opened(node(), log)
            return log

        stack.enter_context(patch.object(Log, "open", opened))
        yield


def _quorum_hooks(invariants: Invariants, node: Callable[[], int]) -> list[Hook]:
    def loaded(loader: MetadataLoader, result: object, *args: object) -> None:
        invariants.metadata_loaded(node(), loader.next_offset)

    def restored(store: ImageStore, result: object, path: str, image: MetadataImage) -> None:
        invariants.metadata_loaded(node(), image.offset + 1)
        invariants.snapshot_installed(node(), image)

    return [
        (CoreDriver, "_step", lambda driver, result, event: invariants.quorum_changed(node(), driver.core.state)),
        (ElectionStore, "save", lambda store, result, state: invariants.vote_saved(node(), state)),
        (ElectionStore, "load", lambda store, result, log_end: invariants.vote_loaded(node(), store, result)),
        (MetadataLoader, "__init__", loaded),
        (ImageStore, "restore", restored),
        (MetadataLoader, "on_commit", lambda loader, result, batch: invariants.metadata_committed(node(), batch)),
        (SnapshotFiles, "freeze_taken", lambda files, result, *args: invariants.snapshot_taken()),
    ]


def _log_hooks(invariants: Invariants, node: Callable[[], int]) -> list[Hook]:
    """Of the partitions' logs: the metadata log is the quorum's."""

    def truncated(log: Log, result: object, offset: int, *, sync: bool = True) -> None:
        if log.topic_id is not None:
            invariants.truncated(node(), (log.topic_id, log.partition.partition), log.log_end_offset)

    def forgotten(log: Log, result: list[int], now_ms: int) -> None:
        if log.topic_id is not None:
            invariants.forgotten(len(result))

    def created(segment: Segment, result: object) -> None:
        if METADATA_DIRECTORY not in segment.path:
            invariants.segment_created(segment.base_offset)

    return [
        (Log, "truncate_to", truncated),
        (Log, "truncate_fully_and_start_at", truncated),
        (Log, "delete_old_segments", forgotten),
        (Segment, "create_files", created),
        (LogCleaner, "install", lambda cleaner, result, task, outcome: invariants.cleaned(result, outcome)),
    ]


def _followed(
    method: Callable[..., Any], after: After, sound: Callable[[], AbstractContextManager[None]]
) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        with sound():
            after(self, result, *args, **kwargs)
        return result

    return call
