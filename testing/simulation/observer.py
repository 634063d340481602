"""Hangs the invariants on the servers' own methods. Each is told in the step of the node that changed something, right after the change.

The hooks stay where they are between runs, when nobody looks on: whoever changes a class throws away what the interpreter has learned of
all code that uses it, and to learn it again took a twentieth of every run.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from inspect import getattr_static
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.broker.directories import METADATA_DIRECTORY
from ottla.broker.replication.hosting import Key
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.log.compaction.manager import LogCleaner
from ottla.log.compaction.worker import Outcome
from ottla.log.log import Log
from ottla.log.retention import RetainedLog
from ottla.log.segments.files import SegmentFiles
from ottla.log.truncation import CuttableLog
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.store import ImageStore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.runtime.disk import Disk
from ottla.runtime.simulation.node import SimulatedNode
from ottla.testing.simulation.invariants import Invariants

After = Callable[..., None]
"""Called with the invariants, and then as the method was, its result behind the first argument."""
Method = Callable[..., Any]


class Hook(NamedTuple):
    """``made`` gives the method that stands in the place of another."""

    owner: type
    name: str
    made: Callable[[Any], Any]


class Watch:
    """Who looks on now: nobody, between runs."""

    invariants: Invariants | None = None


@contextmanager
def observed(invariants: Invariants) -> Iterator[None]:
    """For the length of the block. What the invariants read does not fail."""
    with ExitStack() as stack:
        for hook, pristine in _HOOKS.items():
            now = getattr_static(hook.owner, hook.name)
            if now is pristine:
                setattr(hook.owner, hook.name, _hooked(hook))
            elif now is not _hooked(hook):  # a planted bug stands there, for a while
                stack.enter_context(patch.object(hook.owner, hook.name, hook.made(now)))
        stack.callback(setattr, Watch, "invariants", Watch.invariants)
        Watch.invariants = invariants
        yield


@cache
def _hooked(hook: Hook) -> Any:
    return hook.made(_HOOKS[hook])


def _current(invariants: Invariants) -> SimulatedNode:
    return invariants.loop.current_process.node


def _number(invariants: Invariants) -> int:
    return invariants.cluster.number_of(invariants.loop.current_process.node)


def _after(owner: type, name: str, tell: After) -> Hook:
    def made(method: Method) -> Method:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(self, *args, **kwargs)
            invariants = Watch.invariants
            if invariants is not None:
                platter = invariants.loop.current_process.node.platter
                if platter.is_sound:
                    tell(invariants, self, result, *args, **kwargs)
                else:
                    with platter.sound():
                        tell(invariants, self, result, *args, **kwargs)
            return result

        return call

    return Hook(owner, name, made)


# Partitions


def _moved(invariants: Invariants, partition: Partition, result: object, offset: object) -> None:
    partition.log.make_whole()  # it may have to be read anew first: then it is now
    invariants.partitions.high_watermark_moved(_number(invariants), partition)


def _led(invariants: Invariants, partition: Partition, result: bool, *args: object, **kwargs: object) -> None:
    if result:
        invariants.partitions.led(_number(invariants), partition)


def _created(invariants: Invariants, manager: ReplicaManager, result: Partition, replica: object) -> None:
    invariants.partitions.hosted(_number(invariants), result)


def _dropped(invariants: Invariants, manager: ReplicaManager, result: object, key: Key, topic: str) -> None:
    invariants.partitions.dropped(_number(invariants), key)


# The quorum


def _stepped(invariants: Invariants, driver: CoreDriver, result: object, event: object) -> None:
    invariants.quorum.changed(_number(invariants), driver.core.state)


def _saved(invariants: Invariants, store: ElectionStore, result: object, state: ElectionState) -> None:
    invariants.quorum.vote_saved(_number(invariants), state)


def _read(invariants: Invariants, store: ElectionStore, result: ElectionState, log_end: object) -> None:
    invariants.quorum.vote_loaded(_number(invariants), store, result)


def _loaded(invariants: Invariants, loader: MetadataLoader, result: object, *args: object) -> None:
    invariants.quorum.loaded(_number(invariants), loader.next_offset)


def _restored(invariants: Invariants, store: ImageStore, result: object, path: str, image: MetadataImage) -> None:
    invariants.quorum.loaded(_number(invariants), image.offset + 1)
    invariants.snapshot_installed(_number(invariants), image)


def _committed(invariants: Invariants, loader: MetadataLoader, result: object, batch: CommittedBatch) -> None:
    invariants.quorum.committed(_number(invariants), batch)


def _frozen(invariants: Invariants, files: SnapshotFiles, result: object, *args: object) -> None:
    invariants.storage.snapshots += 1


def _published(tell_all: Method) -> Method:
    """Before the publishers: what they do is judged by the metadata that they act on."""

    def published(loader: MetadataLoader, delta: MetadataDelta) -> None:
        if Watch.invariants is not None:
            Watch.invariants.image_moved(loader.image, delta)
        tell_all(loader, delta)

    return published


# Logs of partitions: the metadata log is the quorum's


def _truncated(invariants: Invariants, log: CuttableLog, result: object, offset: int, *, sync: bool = True) -> None:
    if log.topic_id is not None:
        invariants.partitions.truncated(
            _number(invariants), (log.topic_id, log.partition.partition), log.log_end_offset
        )


def _forgotten(invariants: Invariants, log: RetainedLog, result: list[int], now_ms: int) -> None:
    if log.topic_id is not None:
        invariants.storage.forgotten += len(result)


def _rolled(invariants: Invariants, segment: SegmentFiles, result: object) -> None:
    if METADATA_DIRECTORY not in segment.path:
        invariants.storage.segment_created(segment.base_offset)


def _cleaned(invariants: Invariants, cleaner: LogCleaner, result: bool, task: object, outcome: Outcome) -> None:
    invariants.storage.segment_cleaned(result, outcome)


def _opened(method: Any) -> Any:
    def opened(owner: type[Log], disk: Disk, directory: str, *args: Any, **kwargs: Any) -> Log:
        log: Log = method.__func__(owner, disk, directory, *args, **kwargs)
        invariants = Watch.invariants
        if invariants is not None and METADATA_DIRECTORY not in directory:
            with _current(invariants).platter.sound():
                invariants.partitions.log_opened(_number(invariants), log)
        return log

    return classmethod(opened)


_HOOKS = {
    hook: getattr_static(hook.owner, hook.name)
    for hook in (
        _after(CoreDriver, "_step", _stepped),
        _after(ElectionStore, "save", _saved),
        _after(ElectionStore, "load", _read),
        _after(MetadataLoader, "__init__", _loaded),
        _after(ImageStore, "restore", _restored),
        _after(MetadataLoader, "on_commit", _committed),
        _after(SnapshotFiles, "freeze_taken", _frozen),
        _after(CuttableLog, "truncate_to", _truncated),
        _after(CuttableLog, "truncate_fully_and_start_at", _truncated),
        _after(RetainedLog, "delete_old_segments", _forgotten),
        _after(SegmentFiles, "create_files", _rolled),
        _after(LogCleaner, "install", _cleaned),
        _after(Partition, "committed", _moved),
        _after(Partition, "learn_high_watermark", _moved),
        _after(Partition, "lead", _led),
        _after(ReplicaManager, "_create", _created),
        _after(ReplicaManager, "_drop", _dropped),
        Hook(MetadataLoader, "_tell_all", _published),
        Hook(Log, "open", _opened),
    )
}
"""And what stands there in the product."""
