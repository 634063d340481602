"""A log moves to another directory: everything goes with it, and a crash at any moment leaves one whole log."""

import errno
from contextlib import suppress
from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.moves import FutureLog, begin_move, end_move, finish_move
from ottla.log.directories.roots import MOVED
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import FAILS_WITH, Platter
from tests.unit.log.conftest import NOW_MS

TOPIC_ID = bytes(range(16))
NAME = TopicPartition("flights", 0)
CONFIG = LogConfig(segment_bytes=2_000, retention_ms=-1, file_delete_delay_ms=0)
BATCHES = 30


def manager_on(platter: Platter) -> LogManager:
    settings = ManagerSettings(cluster_id="c", node_id=1)
    manager = LogManager(SimulatedDisk(platter), ["/a", "/b"], CONFIG, settings, Random(1))
    manager.open_all(NOW_MS)
    return manager


def formatted(seed: int) -> Platter:
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    for number, path in enumerate(("/a", "/b")):
        disk.make_directories(path)
        disk.sync_directory("/")
        MetaProperties("c", 1, bytes([number + 1]) * 16).write(disk, path)
    return platter


def append(log: Log, count: int = 1, epoch: int = 0) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        batch = encode_batch(
            [Record(0, NOW_MS, b"k", b"%06d" % offset * 20)], producer_id=7, producer_epoch=0, base_sequence=offset
        )
        log.append_as_leader(batch, epoch, NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def content(log: Log) -> bytes:
    parts, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        parts.append(read.data)
        offset = read.next_offset
    return b"".join(parts)


def filled(manager: LogManager) -> Log:
    log = manager.get_or_create(NAME, CONFIG, TOPIC_ID, manager.roots[0].directory_id, now_ms=NOW_MS)
    append(log, BATCHES // 2)
    append(log, BATCHES // 2, epoch=3)
    return log


def copied(manager: LogManager, log: Log) -> FutureLog:
    move = begin_move(manager, log, manager.roots[1], NOW_MS)
    while not move.copy_some(500):
        pass
    return move


@pytest.fixture
def platter() -> Platter:
    return formatted(1)


def test_a_moved_log_is_the_same_elsewhere(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    before, epochs = content(log), log.epochs.entries()
    moved = finish_move(manager, copied(manager, log), NOW_MS)
    assert manager.logs == {NAME: moved}
    assert (moved.directory, moved.topic_id, moved.root) == ("/b/flights-0", TOPIC_ID, manager.roots[1])
    assert content(moved) == before
    assert moved.epochs.entries() == epochs
    assert (moved.high_watermark, moved.recovery_point) == (BATCHES, BATCHES)
    assert [root.partitions for root in manager.roots] == [0, 1]
    append(moved, epoch=3)  # its producers came along: the next sequence is taken
    manager.removals.purge(NOW_MS)
    assert not [name for name in SimulatedDisk(platter).list_directory("/a") if name.startswith("flights")]
    manager.close()
    platter.close_sessions()
    again = manager_on(platter)
    assert again.logs[NAME].directory == "/b/flights-0"
    assert again.logs[NAME].log_end_offset == BATCHES + 1


def test_an_epoch_in_which_nothing_was_written_goes_along(platter: Platter) -> None:
    """A follower that took another branch before finds with it where to cut."""
    manager = manager_on(platter)
    log = filled(manager)
    log.epochs.assign(5, log.log_end_offset)
    moved = finish_move(manager, copied(manager, log), NOW_MS)
    assert moved.end_offset_for_epoch(4) == (3, BATCHES)


def test_a_log_knows_where_it_lay_before_until_the_process_ends(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    first, second = (root.directory_id for root in manager.roots)
    assert log.moved_from == ()
    log = finish_move(manager, copied(manager, log), NOW_MS)
    assert log.moved_from == (first,)
    move = begin_move(manager, log, manager.roots[0], NOW_MS)
    while not move.copy_some(500):
        pass
    assert finish_move(manager, move, NOW_MS).moved_from == (first, second)
    manager.close()
    platter.close_sessions()
    assert manager_on(platter).logs[NAME].moved_from == ()


def test_what_is_appended_meanwhile_is_copied_too(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    move = begin_move(manager, log, manager.roots[1], NOW_MS)
    assert move.lag == BATCHES
    while not move.copy_some(500):
        if log.log_end_offset < 2 * BATCHES:
            append(log, epoch=3)
    assert move.lag == 0
    before = content(log)
    assert content(finish_move(manager, move, NOW_MS)) == before


def test_what_is_truncated_meanwhile_does_not_come_along(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    move = copied(manager, log)
    log.truncate_to(20)
    append(log, 20, epoch=4)
    while not move.copy_some(500):
        pass
    before, epochs = content(log), log.epochs.entries()
    moved = finish_move(manager, move, NOW_MS)
    assert (content(moved), moved.epochs.entries()) == (before, epochs)


def test_a_log_that_begins_later_begins_there(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    log.advance_log_start(17)
    log.delete_old_segments(NOW_MS)
    move = begin_move(manager, log, manager.roots[1], NOW_MS)
    move.copy_some(500)
    append(log, epoch=3)
    log.advance_log_start(25)
    log.delete_old_segments(NOW_MS)
    while not move.copy_some(500):
        pass
    assert finish_move(manager, move, NOW_MS).log_start_offset == 25


def test_a_move_that_is_given_up_leaves_nothing(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    move = copied(manager, log)
    end_move(manager, move, NOW_MS)
    manager.removals.purge(NOW_MS)
    assert not [name for name in SimulatedDisk(platter).list_directory("/b") if name.startswith("flights")]
    assert [root.partitions for root in manager.roots] == [1, 0]
    append(log, epoch=3)


def test_a_failed_target_leaves_the_log_where_it_was(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    move = begin_move(manager, log, manager.roots[1], NOW_MS)
    platter.fail("/b")
    with pytest.raises(KafkaError):
        move.copy_some(500)
    end_move(manager, move, NOW_MS)
    append(log, epoch=3)
    assert manager.logs == {NAME: log}


def move_all(manager: LogManager, log: Log) -> None:
    finish_move(manager, copied(manager, log), NOW_MS)
    manager.removals.purge(NOW_MS)


@pytest.mark.parametrize("seed", range(3))
def test_the_power_may_go_in_any_operation_of_a_move(seed: int) -> None:
    whole = formatted(seed)
    manager = manager_on(whole)
    filled(manager).flush()
    manager.checkpoints.save_points()
    before = whole.operations
    move_all(manager, manager.logs[NAME])
    for number in range(1, whole.operations - before + 1):
        platter = formatted(seed)
        manager = manager_on(platter)
        log = filled(manager)
        log.flush()
        expected = content(log)
        manager.checkpoints.save_points()
        platter.crash_at_operation(number)
        with pytest.raises(SimulatedCrash):
            move_all(manager, log)
        again = manager_on(platter)
        assert list(again.logs) == [NAME], f"operation {number}"
        assert content(again.logs[NAME]) == expected, f"operation {number}"
        assert again.logs[NAME].topic_id == TOPIC_ID
        again.removals.purge(NOW_MS)
        again.close()
        platter.close_sessions()
        assert content(manager_on(platter).logs[NAME]) == expected


def attempt_to_move(manager: LogManager, log: Log, *, purge: bool = True) -> None:
    """As the broker does it."""
    move = None
    with suppress(StorageError):
        move = begin_move(manager, log, manager.roots[1], NOW_MS)
        while not move.copy_some(500):
            pass
        finish_move(manager, move, NOW_MS)
        move = None
    if move is not None:
        end_move(manager, move, NOW_MS)
    if purge:
        manager.removals.purge(NOW_MS)


def operations_of_a_move(error: int, *, purge: bool = True) -> int:
    """How many of them can fail so."""
    platter, operations = formatted(0), list[str]()
    manager = manager_on(platter)
    log = filled(manager)
    platter.on_attempt = lambda operation, path: operations.append(operation)
    attempt_to_move(manager, log, purge=purge)
    assert manager.logs[NAME].root is manager.roots[1]
    return sum(not FAILS_WITH[error] or each in FAILS_WITH[error] for each in operations)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC, errno.EIO], ids=errno.errorcode.__getitem__)
def test_any_operation_of_a_move_may_fail_and_the_log_is_in_one_place(error: int) -> None:
    for number in range(1, operations_of_a_move(error) + 1):
        platter = formatted(number)
        manager = manager_on(platter)
        log = filled(manager)
        platter.fail_once(number, error, FAILS_WITH[error], written=number % 3 / 2)
        attempt_to_move(manager, log)
        assert not platter.failure_is_due
        lost = [root for root in manager.roots if root.failure is not None]
        assert not lost or error == errno.EIO, f"operation {number}: {lost[0].failure}"
        manager.check_space()
        counts = next((root.directory_id for root in manager.roots if NAME in manager.logs or root in lost), b"")
        if NAME in manager.logs:
            log = manager.logs[NAME]
            append(log, epoch=3)
            counts = log.root.directory_id
        expected = content(log) if NAME in manager.logs else b""
        if not lost and log.root is manager.roots[0]:
            attempt_to_move(manager, log)
            log = manager.logs[NAME]
            assert log.root is manager.roots[1], f"operation {number}: the next attempt"
            assert content(log) == expected
            counts = log.root.directory_id
        if not lost:
            disk = SimulatedDisk(platter)
            listed = [f"{path}/{name}" for path in ("/a", "/b") for name in disk.list_directory(path)]
            left = [path for path in listed if "flights" in path and not disk.exists(f"{path}/{MOVED}")]
            assert left == ["/b/flights-0"], f"operation {number}"
            assert [root.partitions for root in manager.roots] == [0, 1], f"operation {number}"
        manager.close()
        platter.close_sessions()
        again = manager_on(platter)
        found = again.get_or_create(NAME, CONFIG, TOPIC_ID, counts, now_ms=NOW_MS)
        if expected:
            assert content(found) == expected, f"operation {number}"
        assert found.log_end_offset >= BATCHES, f"operation {number}"


@pytest.mark.parametrize("end", ["kill", "power"])
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.__getitem__)
def test_what_is_appended_after_a_move_that_failed_is_there_at_the_next_start(error: int, end: str) -> None:
    """Though it comes before the copy is removed."""
    for number in range(1, operations_of_a_move(error, purge=False) + 1):
        platter = formatted(number)
        manager = manager_on(platter)
        log = filled(manager)
        log.flush()
        platter.fail_once(number, error, FAILS_WITH[error], written=number % 3 / 2)
        attempt_to_move(manager, log, purge=False)
        assert not platter.failure_is_due
        manager.check_space()
        check_what_is_appended_now(platter, manager, end, f"operation {number}")


@pytest.mark.parametrize("seed", range(8))
def test_a_mark_whose_end_could_not_be_synced_does_not_come_back(seed: int) -> None:
    platter = formatted(seed)
    manager = manager_on(platter)
    log = filled(manager)
    append(log, epoch=3)  # the next one rolls no segment, whose name would be synced
    log.flush()
    platter.fail("/b/flights-0/", errno.EMFILE, ("open",))
    platter.fail_once(2, errno.EMFILE, ("sync_directory",), "/a/flights-0")
    attempt_to_move(manager, log, purge=False)
    assert not platter.failure_is_due
    assert manager.logs[NAME] is log
    platter.repair()
    check_what_is_appended_now(platter, manager, "power", "the next start")


def check_what_is_appended_now(platter: Platter, manager: LogManager, end: str, when: str) -> None:
    log = manager.logs[NAME]
    append(log, epoch=3)
    log.flush()
    expected = content(log)
    if end == "power":
        platter.power_loss()
    else:
        platter.close_sessions()
    found = manager_on(platter).get_or_create(NAME, CONFIG, TOPIC_ID, log.root.directory_id, now_ms=NOW_MS)
    assert content(found) == expected, when


def without_room(seed: int) -> tuple[Platter, LogManager, Log]:
    """A log on a disk that is full to the last byte."""
    platter = formatted(seed)
    manager = manager_on(platter)
    log = filled(manager)
    log.flush()
    manager.checkpoints.save_points()
    platter.fail("/a", errno.ENOSPC, ("create", "write", "mkdir"))
    return platter, manager, log


@pytest.mark.parametrize("end", ["kill", "power"])
def test_a_log_leaves_a_disk_on_which_there_is_no_room_for_a_mark(end: str) -> None:
    """That a disk is full is why a replica is moved away from it."""
    platter, manager, log = without_room(0)
    attempt_to_move(manager, log, purge=False)
    assert manager.logs[NAME].directory == "/b/flights-0"
    platter.repair()
    check_what_is_appended_now(platter, manager, end, "the next start")


@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_left_a_full_disk_does_not_come_back_longer_with_a_power_cut(seed: int) -> None:
    platter, manager, log = without_room(seed)
    attempt_to_move(manager, log, purge=False)
    moved = manager.logs[NAME]
    moved.truncate_to(10)
    expected = content(moved)
    platter.repair()
    platter.power_loss()
    found = manager_on(platter).get_or_create(NAME, CONFIG, TOPIC_ID, moved.root.directory_id, now_ms=NOW_MS)
    assert content(found) == expected


@pytest.mark.parametrize("directory_id", [b"\1" * 16, b"\2" * 16], ids=["told of the old place", "told of the new one"])
def test_a_crash_at_any_moment_of_leaving_a_full_disk_leaves_one_whole_log(directory_id: bytes) -> None:
    whole, manager, log = without_room(0)
    before = whole.operations
    attempt_to_move(manager, log, purge=False)
    for number in range(1, whole.operations - before + 1):
        platter, manager, log = without_room(number)
        expected = content(log)
        platter.crash_at_operation(number)
        with pytest.raises(SimulatedCrash):
            attempt_to_move(manager, log, purge=False)
        platter.repair()
        found = manager_on(platter).get_or_create(NAME, CONFIG, TOPIC_ID, directory_id, now_ms=NOW_MS)
        assert content(found) == expected, f"operation {number}"


def test_a_copy_that_could_neither_be_opened_nor_renamed_is_not_in_the_way_of_the_next(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    platter.fail("/b/flights-0/", errno.EMFILE, ("open",))
    platter.fail("/b/flights-0 ", errno.ENOSPC, ("rename",))
    attempt_to_move(manager, log)
    assert manager.logs[NAME] is log
    platter.repair()
    append(log, epoch=3)
    manager.check_space()
    expected = content(log)
    attempt_to_move(manager, log)
    assert (manager.logs[NAME].directory, content(manager.logs[NAME])) == ("/b/flights-0", expected)
    left = [name for name in SimulatedDisk(platter).list_directory("/b") if "flights" in name]
    assert [name for name in left if not name.endswith("-stray")] == ["flights-0"]


def test_a_log_whose_old_place_cannot_be_renamed_is_moved_and_may_go_back(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    platter.fail("/a/flights-0 ", errno.ENOSPC, ("rename",))
    attempt_to_move(manager, log)
    moved = manager.logs[NAME]
    assert moved.directory == "/b/flights-0"
    platter.repair()
    append(moved, epoch=3)
    manager.check_space()
    expected = content(moved)
    move = begin_move(manager, moved, manager.roots[0], NOW_MS)
    while not move.copy_some(500):
        pass
    assert content(finish_move(manager, move, NOW_MS)) == expected
    manager.close()
    platter.close_sessions()
    assert content(manager_on(platter).logs[NAME]) == expected


def test_where_it_cannot_be_said_that_a_move_failed_the_log_takes_nothing_more(platter: Platter) -> None:
    """The next start takes the copy, and would lack it."""
    manager = manager_on(platter)
    log = filled(manager)
    platter.fail("/b/flights-0/", errno.EMFILE, ("open",))
    platter.fail("/a/flights-0/moved", errno.EIO, ("unlink",))
    attempt_to_move(manager, log)
    assert manager.roots[0].failure is not None
    assert manager.logs == {}


def test_what_was_deleted_before_a_move_does_not_come_back_with_a_crash_behind_it(platter: Platter) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    move = copied(manager, log)
    log.advance_log_start(17)
    assert move.copy_some(500)
    moved = finish_move(manager, move, NOW_MS)
    assert moved.log_start_offset == 17
    platter.power_loss()
    again = manager_on(platter).logs[NAME]
    assert (again.directory, again.log_start_offset) == ("/b/flights-0", 17)
    assert again.epochs.entries() == moved.epochs.entries()


def test_a_log_start_goes_along_wherever_a_crash_finds_the_move(platter: Platter) -> None:
    def moved(platter: Platter) -> None:
        manager = manager_on(platter)
        log = filled(manager)
        move = copied(manager, log)
        log.advance_log_start(17)
        log.flush()
        manager.checkpoints.save_points()
        platter.crash_at_operation(operation)
        finish_move(manager, move, NOW_MS)

    operation = 1
    while True:
        platter = formatted(operation)
        try:
            moved(platter)
        except SimulatedCrash:
            assert manager_on(platter).logs[NAME].log_start_offset == 17, f"operation {operation}"
            operation += 1
        else:
            break
    assert operation > 10


def test_a_log_that_was_cut_half_way_is_read_anew_before_its_copy_counts(
    platter: Platter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it remembers of itself is of the log that was to be, and its end of the one that was."""
    manager = manager_on(platter)
    log = filled(manager)
    move = copied(manager, log)
    write_epochs = Log.write_epochs

    def fail(log: Log) -> None:
        platter.fail(log.directory, errno.EMFILE, FAILS_WITH[errno.EMFILE])
        write_epochs(log)

    monkeypatch.setattr(Log, "write_epochs", fail)
    with pytest.raises(StorageError):
        log.truncate_fully_and_start_at(20)
    monkeypatch.undo()
    assert log.half_done
    with pytest.raises(StorageError):
        move.copy_some(500)
    platter.repair()
    while not move.copy_some(500):
        pass
    append(log, 5, epoch=4)
    while not move.copy_some(500):
        pass
    before = content(log)
    moved = finish_move(manager, move, NOW_MS)
    assert (content(moved), moved.log_start_offset, moved.epochs.entries()) == (before, 20, ((4, 20),))


def test_a_log_that_moved_into_a_directory_that_is_lost_is_not_made_anew_where_it_was(platter: Platter) -> None:
    """Its broker died before the controller knew of the move."""
    manager = manager_on(platter)
    log = filled(manager)
    source = log.root.directory_id
    expected = content(finish_move(manager, copied(manager, log), NOW_MS))
    platter.close_sessions()
    platter.fail("/b")
    with pytest.raises(StorageError):
        manager_on(platter).get_or_create(NAME, CONFIG, TOPIC_ID, source, now_ms=NOW_MS, is_new=False)
    platter.repair()
    platter.close_sessions()
    again = manager_on(platter)
    assert content(again.get_or_create(NAME, CONFIG, TOPIC_ID, source, now_ms=NOW_MS, is_new=False)) == expected


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_who_wrote_what_is_deleted_by_now_is_known_behind_a_move_and_a_start(platter: Platter, end: str) -> None:
    manager = manager_on(platter)
    log = filled(manager)
    log.advance_log_start(log.log_end_offset)
    log.delete_old_segments(NOW_MS)
    assert not content(log)
    log = finish_move(manager, copied(manager, log), NOW_MS)
    if end == "stop":
        manager.close()
    platter.close_sessions()
    again = manager_on(platter).logs[NAME]
    batch = encode_batch([Record(0, NOW_MS, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=BATCHES + 5)
    with pytest.raises(KafkaError) as caught:
        again.append_as_leader(batch, 4, NOW_MS)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
