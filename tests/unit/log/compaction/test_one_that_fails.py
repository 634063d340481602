"""A log that cannot be looked at is passed over: the others are cleaned."""

import errno
from random import Random

import pytest

from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.conftest import NOW_MS, MakeBatch
from tests.unit.log.directories.manager_bench import TOPIC_ID, format_directory, name

CONFIG = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


@pytest.fixture
def manager(disk: SimulatedDisk, make_batch: MakeBatch) -> LogManager:
    """A log in each of two directories, both due. The first is the dirtier one."""
    for number, path in enumerate(("/a", "/b"), start=1):
        format_directory(disk, path, number)
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(disk, ["/a", "/b"], CONFIG, settings, Random(3))
    manager.open_all(NOW_MS)
    for number in range(2):
        add_dirty(manager, number, make_batch)
    manager.checkpoints.save_points()
    return manager


def add_dirty(manager: LogManager, number: int, make_batch: MakeBatch, directory_id: bytes | None = None) -> None:
    log = manager.get_or_create(name(number), CONFIG, TOPIC_ID, directory_id, now_ms=NOW_MS)
    for _ in range(2):
        log.append_as_leader(make_batch(2), 0, NOW_MS)
        log.roll()
    log.flush()
    log.set_high_watermark(log.log_end_offset)


@pytest.mark.parametrize(("number", "operations"), [(errno.EIO, ("read",)), (errno.EMFILE, ("open",))])
def test_a_log_that_cannot_be_looked_at_keeps_no_other_from_being_cleaned(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, number: int, operations: tuple[str, ...]
) -> None:
    for log in manager.logs.values():
        log.let_go()
    platter.fail("/a/flights-0/", number, operations)
    task = cleaner_of(manager).next_task(iter(manager.logs.values()), NOW_MS)
    assert task is not None
    assert task.log.partition == name(1)
    assert (manager.roots[0].failure is not None) is (number == errno.EIO)


def test_a_log_whose_transaction_index_finds_no_room_keeps_no_other_from_being_cleaned(
    manager: LogManager, platter: Platter
) -> None:
    index = manager.logs[name(0)].segments[0].transactions()
    index.checked = True
    platter.fail(index.path, errno.ENOSPC)
    index.append(AbortedTransaction(1, 0, 1, 2))
    task = cleaner_of(manager).next_task(iter(manager.logs.values()), NOW_MS)
    assert task is not None
    assert task.log.partition == name(1)


def test_a_log_whose_index_never_finds_room_waits_for_those_of_its_directory(
    manager: LogManager, platter: Platter, make_batch: MakeBatch
) -> None:
    add_dirty(manager, 2, make_batch, manager.roots[0].directory_id)
    manager.checkpoints.save_points()
    logs = [log for log in manager.logs.values() if log.root is manager.roots[0]]
    index = logs[0].segments[0].transactions()
    index.checked = True
    platter.fail(index.path, errno.ENOSPC)
    index.append(AbortedTransaction(1, 0, 1, 2))
    cleaner = cleaner_of(manager)
    assert cleaner.next_task(logs, NOW_MS) is None
    task = cleaner.next_task(logs, NOW_MS)
    assert task is not None
    assert task.log.partition == name(2)


def cleaner_of(manager: LogManager) -> LogCleaner:
    return LogCleaner(manager.disk, CleanerSettings(), manager.checkpoints.cleaned)
