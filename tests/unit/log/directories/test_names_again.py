"""A name that is used again, by another topic or by another replica of the same: what was written about the log that went says
nothing of the one that came, whenever the process ends."""

from collections.abc import Callable
from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories import checkpoints
from ottla.log.directories.checkpoints import PartitionMetadata
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.moves import begin_move, finish_move
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.work_later import OnDone, Work, at_once
from ottla.testing.log.offset_checkpoint import OffsetCheckpoint
from tests.unit.log.conftest import NOW_MS, MakeBatch, OpenLog

NAME = TopicPartition("flights", 0)
OLD, NEW = bytes(range(16)), bytes(range(1, 17))
SETTINGS = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
BATCH_BYTES = 5_000


@pytest.fixture
def platter() -> Platter:
    platter = Platter.seeded(7)
    disk = SimulatedDisk(platter)
    for number, path in enumerate(("/a", "/b"), start=1):
        disk.make_directories(path)
        checkpoints.MetaProperties("c", 1, bytes(15) + bytes([number])).write(disk, path)
    return platter


def start(platter: Platter, write_later: Callable[[Work, OnDone], None] = at_once) -> LogManager:
    """As after kill -9 of the process before, unless that was closed."""
    platter.close_sessions()
    manager = LogManager(
        SimulatedDisk(platter), ["/a", "/b"], LogConfig(), SETTINGS, Random(3), write_later=write_later
    )
    manager.open_all(NOW_MS)
    return manager


def create(manager: LogManager, topic_id: bytes, place: int = 1) -> Log:
    return manager.get_or_create(NAME, LogConfig(), topic_id, bytes(15) + bytes([place]), now_ms=NOW_MS)


def filled(manager: LogManager, make_batch: MakeBatch, topic_id: bytes = OLD) -> Log:
    """60 records, all on stable storage, the first 50 deleted, and the checkpoints say so."""
    log = create(manager, topic_id)
    for _ in range(60):
        log.append_as_leader(make_batch(text="x" * BATCH_BYTES), 0, NOW_MS)
    log.flush()
    log.set_high_watermark(60)
    log.advance_log_start(50)
    manager.checkpoints.save_points()
    manager.checkpoints.save_high_watermarks()
    return log


def append(log: Log, make_batch: MakeBatch, count: int = 20) -> None:
    for _ in range(count):
        log.append_as_leader(make_batch(text="y" * BATCH_BYTES), 0, NOW_MS)


def lose_a_page(log: Log) -> None:
    """The last one of the file was never written back."""
    file = log.disk.open(log.active.path)
    file.write_at([bytes(BATCH_BYTES // 2)], log.active.size - BATCH_BYTES // 2)


def test_the_records_of_a_topic_made_anew_are_there_after_a_kill(platter: Platter, make_batch: MakeBatch) -> None:
    manager = start(platter)
    filled(manager, make_batch)
    manager.delete(NAME, NOW_MS)
    append(create(manager, NEW), make_batch)
    again = start(platter).logs[NAME]
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (0, 20, 0)


def test_the_recovery_point_of_an_earlier_topic_lets_no_torn_page_pass(platter: Platter, make_batch: MakeBatch) -> None:
    manager = start(platter)
    filled(manager, make_batch)
    manager.delete(NAME, NOW_MS)
    log = create(manager, NEW)
    append(log, make_batch, 40)  # the old topic's recovery point is beyond: 60
    append(log, make_batch, 30)  # and here within
    lose_a_page(log)
    again = start(platter).logs[NAME]
    assert (again.log_end_offset, again.recovery_point) == (69, 0)


def test_another_replica_of_the_same_topic_owes_nothing_to_the_first(platter: Platter, make_batch: MakeBatch) -> None:
    """A partition that is moved to another broker and back has its topic id all the while."""
    manager = start(platter)
    filled(manager, make_batch)
    manager.delete(NAME, NOW_MS)
    log = create(manager, OLD)
    append(log, make_batch, 70)
    lose_a_page(log)
    again = start(platter).logs[NAME]
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (0, 69, 0)


@pytest.mark.parametrize("dropped", [True, False], ids=["its rows were removed", "they wait to be"])
def test_the_high_watermark_of_another_replica_of_the_same_topic_is_its_own(
    platter: Platter, make_batch: MakeBatch, dropped: bool
) -> None:
    """Or what no leader ever said to be committed counts as such: this one may be cut yet."""
    manager = start(platter)
    filled(manager, make_batch)
    manager.delete(NAME, NOW_MS)
    if dropped:
        assert manager.checkpoints.drop_gone()
    log = create(manager, OLD)
    append(log, make_batch, 40)
    log.set_high_watermark(10)
    assert start(platter).logs[NAME].high_watermark <= 10


def test_the_high_watermark_of_a_log_that_went_goes_with_the_next_save(platter: Platter, make_batch: MakeBatch) -> None:
    manager = start(platter)
    filled(manager, make_batch)
    manager.delete(NAME, NOW_MS)
    manager.checkpoints.save_high_watermarks()
    assert read_owned(manager.disk, f"/a/{checkpoints.HIGH_WATERMARKS}") == {}


def test_logs_that_come_back_at_once_write_each_checkpoint_once(platter: Platter, make_batch: MakeBatch) -> None:
    """Of all that went one write takes the rows out, before the first of them begins anew."""
    manager = start(platter)
    names = [TopicPartition("many", number) for number in range(40)]
    for name in names:
        log = manager.get_or_create(name, LogConfig(), OLD, bytes(15) + b"\x01", now_ms=NOW_MS)
        log.append_as_leader(make_batch(2), 0, NOW_MS)
        log.flush()
        log.set_high_watermark(2)
    manager.checkpoints.save_points()
    manager.checkpoints.save_high_watermarks()
    for name in names:
        manager.delete(name, NOW_MS)
    root = manager.roots[0]
    before = manager.disk.read_bytes(f"/a/{checkpoints.HIGH_WATERMARKS}")
    manager.get_or_create(names[0], LogConfig(), OLD, bytes(15) + b"\x01", now_ms=NOW_MS)
    assert before != manager.disk.read_bytes(f"/a/{checkpoints.HIGH_WATERMARKS}") == b"0\n0\n"
    for each in (root.recovery_points, root.start_offsets, root.high_watermarks):
        assert each is not None
        assert each.saved == {}
    assert root.gone == {}


def test_a_write_that_was_under_way_does_not_bring_back_what_was_said_of_the_first(
    platter: Platter, make_batch: MakeBatch
) -> None:
    waiting: list[tuple[Work, OnDone]] = []
    manager = start(platter, lambda *entry: waiting.append(entry))
    filled(manager, make_batch)
    manager.delete(NAME, NOW_MS)
    assert not manager.checkpoints.drop_gone(), "a write is under way"
    create(manager, OLD)
    for work, on_done in waiting:
        at_once(work, on_done)
    assert manager.checkpoints.drop_gone()
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.HIGH_WATERMARKS):
        assert read_owned(manager.disk, f"/a/{name}") == {}


def test_a_log_that_moves_to_another_directory_and_back_is_scanned_there(
    platter: Platter, make_batch: MakeBatch
) -> None:
    manager = start(platter)
    filled(manager, make_batch)
    for root in (manager.roots[1], manager.roots[0]):
        log = manager.logs[NAME]
        if root is manager.roots[0]:
            log.truncate_to(55)  # below what the checkpoint of the first directory says
        move = begin_move(manager, log, root, NOW_MS)
        while not move.copy_some(1 << 20):
            pass
        log = finish_move(manager, move, NOW_MS)
    append(log, make_batch, 10)
    lose_a_page(log)
    assert start(platter).logs[NAME].log_end_offset == 64


def moved(manager: LogManager, place: int) -> Log:
    move = begin_move(manager, manager.logs[NAME], manager.roots[place], NOW_MS)
    while not move.copy_some(1 << 20):
        pass
    return finish_move(manager, move, NOW_MS)


def test_what_is_said_of_a_log_that_came_back_does_not_go_with_what_was_said_of_the_first(
    platter: Platter, make_batch: MakeBatch
) -> None:
    """There and back within the tenth of a second after which the rows of what went are removed."""
    manager = start(platter)
    append(create(manager, OLD), make_batch)
    moved(manager, 1)
    log = moved(manager, 0)
    log.flush()
    log.set_high_watermark(20)
    log.advance_log_start(15)
    manager.checkpoints.save_points()
    assert manager.checkpoints.drop_gone()
    again = start(platter).logs[NAME]
    assert (again.directory, again.log_start_offset) == (f"/a/{NAME}", 15)


def test_deleted_logs_go_from_the_checkpoints_with_one_write(platter: Platter, make_batch: MakeBatch) -> None:
    manager = start(platter)
    for number in range(40):
        manager.get_or_create(TopicPartition("many", number), LogConfig(), OLD, bytes(15) + b"\x01", now_ms=NOW_MS)
    filled(manager, make_batch)
    for number in range(40):
        manager.delete(TopicPartition("many", number), NOW_MS)
    before = platter.operations
    manager.checkpoints.drop_gone()
    assert platter.operations - before <= 6, "one file, written atomically"
    assert [key.partition for key in read_owned(manager.disk, f"/a/{checkpoints.RECOVERY_POINTS}")] == [NAME]


def as_an_older_node_wrote_them(disk: SimulatedDisk) -> None:
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.HIGH_WATERMARKS):
        path = f"/a/{name}"
        OffsetCheckpoint(disk, path).write({key.partition: offset for key, offset in read_owned(disk, path).items()})


def test_after_an_older_nodes_clean_stop_its_checkpoints_are_believed(platter: Platter, make_batch: MakeBatch) -> None:
    manager = start(platter)
    filled(manager, make_batch)
    manager.close()
    as_an_older_node_wrote_them(SimulatedDisk(platter))
    for _ in range(2):  # and say whose they are from then on, should this process be killed
        log = start(platter).logs[NAME]
        assert (log.log_start_offset, log.high_watermark) == (50, 60)


def test_after_an_older_nodes_kill_nothing_is_believed(platter: Platter, make_batch: MakeBatch) -> None:
    """It may be of an earlier topic. Deleted records may come back; what was acknowledged does not go."""
    log = filled(start(platter), make_batch)
    lose_a_page(log)
    as_an_older_node_wrote_them(SimulatedDisk(platter))
    again = start(platter).logs[NAME]
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (0, 59, 0)


def test_rows_that_nobody_claimed_are_not_believed_after_the_next_clean_stop(
    platter: Platter, make_batch: MakeBatch
) -> None:
    filled(start(platter), make_batch)
    as_an_older_node_wrote_them(SimulatedDisk(platter))
    start(platter).close()  # after a kill; what it writes is what it found
    assert start(platter).logs[NAME].log_start_offset == 0


def test_a_log_that_does_not_say_whose_it_is_takes_no_checkpoint_for_its_own(
    platter: Platter, make_batch: MakeBatch
) -> None:
    filled(start(platter), make_batch)
    disk = SimulatedDisk(platter)
    as_an_older_node_wrote_them(disk)
    disk.unlink(f"/a/{NAME}/{checkpoints.PARTITION_METADATA}")
    assert PartitionMetadata.read(disk, f"/a/{NAME}") is None
    assert start(platter).logs[NAME].log_start_offset == 0


@pytest.mark.parametrize(("recovery_point", "believed"), [(2, 2), (4, 0), (500, 0)])
def test_a_recovery_point_beyond_the_logs_end_lets_no_torn_page_pass(
    disk: SimulatedDisk, open_log: OpenLog, make_batch: MakeBatch, recovery_point: int, believed: int
) -> None:
    log = open_log()
    append(log, make_batch, 3)
    lose_a_page(log)
    again = open_log(SimulatedDisk(disk._platter), recovery_point=recovery_point)
    assert (again.log_end_offset, again.recovery_point) == (2, believed)
