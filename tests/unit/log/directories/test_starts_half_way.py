"""A start that ends a move which a crash interrupted: each of its operations fails once, and the next start finds the log whole."""

import errno
from collections.abc import Callable
from functools import cache

import pytest

from ottla.log.directories.roots import MOVED, LogDirectoryError
from ottla.log.errors import StorageError
from ottla.runtime.simulation.backup import Backup, back_up, put_back
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import FAILS_WITH, Platter
from tests.unit.log.conftest import NOW_MS
from tests.unit.log.directories.test_moves import (
    CONFIG,
    NAME,
    TOPIC_ID,
    append,
    content,
    filled,
    formatted,
    manager_on,
    move_all,
)

ERRORS = [errno.EMFILE, errno.ENOSPC, errno.EIO]
AFTER_THE_MARK, AFTER_THE_RENAME = range(2)


@cache
def interrupted(when: int) -> tuple[Backup, bytes]:
    """What a disk held on which the power went in a move, right behind its mark or behind the copy's new name; and what the log held."""
    for number in range(1, 1_000):
        platter = formatted(1)
        manager = manager_on(platter)
        log = filled(manager)
        log.flush()
        expected = content(log)
        manager.checkpoints.save_points()
        platter.crash_at_operation(number)
        with pytest.raises(SimulatedCrash):
            move_all(manager, log)
        platter.close_sessions()
        disk = SimulatedDisk(platter)
        if disk.exists(f"/a/{NAME}/{MOVED}") and disk.exists(f"/b/{NAME}") is (when == AFTER_THE_RENAME):
            return back_up(platter), expected
    raise AssertionError("no such moment")


def disk_of(when: int, seed: int) -> Platter:
    platter = Platter.seeded(seed)
    put_back(platter, interrupted(when)[0])
    return platter


def start(platter: Platter) -> None:
    """And whatever comes of it, an end as by kill -9."""
    try:
        manager = manager_on(platter)
        if NAME in manager.logs and not any(root.failure for root in manager.roots):
            manager.get_or_create(NAME, CONFIG, TOPIC_ID, now_ms=NOW_MS)
        manager.removals.purge(NOW_MS)
    except (LogDirectoryError, StorageError):
        pass
    platter.close_sessions()


def operations_of(act: Callable[[], None], platter: Platter, error: int) -> int:
    operations: list[str] = []
    platter.on_attempt = lambda operation, path: operations.append(operation)
    act()
    return sum(not FAILS_WITH[error] or each in FAILS_WITH[error] for each in operations)


@pytest.mark.parametrize("when", [AFTER_THE_MARK, AFTER_THE_RENAME], ids=["after the mark", "after the rename"])
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
def test_a_start_that_fails_half_way_leaves_the_next_a_whole_log(error: int, when: int) -> None:
    whole, expected = disk_of(when, 1), interrupted(when)[1]
    count = operations_of(lambda: start(whole), whole, error)
    assert count > (error != errno.ENOSPC)  # of room there may be need but once
    for number in range(1, count + 1):
        platter = disk_of(when, number)
        platter.fail_once(number, error, FAILS_WITH[error], written=number % 3 / 2)
        start(platter)
        platter.repair()
        again = manager_on(platter)
        found = again.get_or_create(NAME, CONFIG, TOPIC_ID, now_ms=NOW_MS)
        assert content(found) == expected, f"operation {number}"
        again.removals.purge(NOW_MS)
        assert not [root for root in again.roots if root.failure], f"operation {number}"


@pytest.mark.parametrize("when", [AFTER_THE_MARK, AFTER_THE_RENAME], ids=["after the mark", "after the rename"])
@pytest.mark.parametrize("rot", [b"", b"\xff\xfe", b"a\nb\nc", b"/a/x\n/b/y\n"])
def test_a_mark_that_has_rotted_costs_nothing(rot: bytes, when: int) -> None:
    platter, expected = disk_of(when, 1), interrupted(when)[1]
    SimulatedDisk(platter).write_atomically(f"/a/{NAME}/{MOVED}", rot)
    manager = manager_on(platter)
    assert content(manager.get_or_create(NAME, CONFIG, TOPIC_ID, now_ms=NOW_MS)) == expected


def test_what_an_earlier_start_has_not_removed_yet_is_in_no_ones_way() -> None:
    platter, expected = disk_of(AFTER_THE_RENAME, 1), interrupted(AFTER_THE_RENAME)[1]
    SimulatedDisk(platter).make_directories(f"/a/{NAME}.{'0' * 32}-delete/more")
    manager = manager_on(platter)
    assert content(manager.logs[NAME]) == expected
    assert not [root for root in manager.roots if root.failure]


@pytest.mark.parametrize(("path", "lost"), [("/b", 1), ("/a", 0)])
def test_a_disk_that_fails_while_a_move_is_ended_costs_no_other(path: str, lost: int) -> None:
    platter, expected = disk_of(AFTER_THE_MARK, 1), interrupted(AFTER_THE_MARK)[1]
    platter.fail(f"{path}/{NAME}", errno.EIO, ("rename", "unlink"))
    manager = manager_on(platter)
    assert [root.failure is not None for root in manager.roots] == [lost == 0, lost == 1]
    if NAME in manager.logs:
        assert content(manager.logs[NAME]) == expected


@pytest.mark.parametrize("when", [AFTER_THE_MARK, AFTER_THE_RENAME], ids=["after the mark", "after the rename"])
@pytest.mark.parametrize("others", [[], ["/a/other-0.1-future"]], ids=["alone", "beside another move"])
def test_a_log_that_goes_on_without_the_directory_to_which_it_moved_is_not_given_up_for_the_copy(
    when: int, others: list[str]
) -> None:
    platter, expected = disk_of(when, 1), interrupted(when)[1]
    for path in others:
        SimulatedDisk(platter).make_directories(path)
    platter.fail("/b")
    manager = manager_on(platter)
    assert [root.failure is not None for root in manager.roots] == [False, True]
    log = manager.logs[NAME]
    assert content(log) == expected
    append(log, epoch=3)
    log.flush()
    expected = content(log)
    platter.repair()
    platter.close_sessions()
    again = manager_on(platter)
    assert content(again.get_or_create(NAME, CONFIG, TOPIC_ID, log.root.directory_id, now_ms=NOW_MS)) == expected
    assert not [root for root in again.roots if root.failure]
