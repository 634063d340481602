"""Indexes that are made anew while something fails, and those of a segment that is gone."""

import errno

import pytest

from ottla.log.config import LogConfig
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.segments.open_files import OpenFiles
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.conftest import NOW_MS, MakeBatch, OpenLog

FIRST = "/data/flights-0/00000000000000000000"


def closed_segment(open_log: OpenLog, make_batch: MakeBatch) -> Log:
    """Twenty batches in a segment that the last process closed."""
    log = open_log(index_interval_bytes=0)
    for number in range(20):
        log.append_as_leader(make_batch(2, time=NOW_MS + 10 * number), 0, NOW_MS)
    log.roll()
    log.append_as_leader(make_batch(2, time=NOW_MS + 900), 0, NOW_MS)
    log.close()
    return open_log(index_interval_bytes=0, clean_shutdown=True)


def search_and_refuse(log: Log) -> None:
    with pytest.raises(StorageError):
        log.offset_for_timestamp(NOW_MS + 50)


def assert_sound(log: Log) -> None:
    found = log.offset_for_timestamp(NOW_MS + 50)
    assert found is not None
    assert found.offset == 10
    assert log.segments[0].largest_timestamp() == NOW_MS + 191
    assert log.segments[0].index_bytes() == (19 * 8, 19 * 12)


@pytest.mark.parametrize("gone", [".index", ".timeindex"])
def test_indexes_that_could_not_be_made_anew_are_made_the_next_time(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk, platter: Platter, gone: str
) -> None:
    log = closed_segment(open_log, make_batch)
    disk.unlink(FIRST + gone)
    repair = platter.fail(FIRST + ".log", errno.EMFILE, ("open",))
    search_and_refuse(log)
    repair()
    assert_sound(log)
    log.close()
    assert_sound(open_log(index_interval_bytes=0, clean_shutdown=True))


def test_the_largest_time_is_looked_for_again_when_that_failed(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk, platter: Platter
) -> None:
    log = closed_segment(open_log, make_batch)
    file = disk.open(FIRST + ".timeindex")
    file.truncate(12)  # as a crash may leave it
    file.close()
    repair = platter.fail(FIRST + ".log", errno.EMFILE, ("open",))
    search_and_refuse(log)
    repair()
    assert log.segments[0].largest_timestamp() == NOW_MS + 191


@pytest.mark.parametrize("later", [0, 30])
def test_an_index_whose_first_record_has_the_time_zero_is_sound(
    open_log: OpenLog, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """Its first entry is all zeros: at each load it was taken for a page that was lost, and the whole segment read."""
    log = open_log(index_interval_bytes=0)
    for number in range(20):
        log.append_as_leader(make_batch(1, time=later * max(number - 1, 0)), 0, NOW_MS)
    log.roll()
    log.append_as_leader(make_batch(1), 0, NOW_MS)
    log.close()
    log = open_log(index_interval_bytes=0, clean_shutdown=True)
    first = log.segments[0]
    monkeypatch.setattr(type(first), "rebuild_indexes", lambda _: pytest.fail("the segment is read"))
    assert log.read(10, 100).next_offset == 11
    assert first.largest_timestamp() == 18 * later
    found = log.offset_for_timestamp(1)
    assert found is not None
    assert found.offset == (2 if later else 20)


@pytest.mark.parametrize("first", [1, 2])
def test_a_time_index_of_zeros_is_made_anew_where_the_first_batch_says_otherwise(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk, first: int
) -> None:
    """One record of the time 1, or two of the times 0 and 1."""
    log = open_log()
    log.append_as_leader(make_batch(first, time=2 - first), 0, NOW_MS)
    log.roll()
    log.append_as_leader(make_batch(1), 0, NOW_MS)
    log.close()
    disk.open(FIRST + ".timeindex").write_at([bytes(12)], 0)
    log = open_log(clean_shutdown=True)
    assert (list(log.segments[0].time_index().timestamps), log.segments[0].largest_timestamp()) == ([1], 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_log_is_read_though_its_index_finds_no_room(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk, platter: Platter, number: int
) -> None:
    log = closed_segment(open_log, make_batch)
    disk.unlink(FIRST + ".index")
    repair = platter.fail(FIRST, number, ("create", "write"))
    assert_sound(log)
    assert not disk.exists(FIRST + ".index")
    repair()
    log.segments[0].forget_indexes()
    assert len(disk.read_bytes(FIRST + ".index")) == 19 * 8
    assert_sound(log)


def test_a_segment_that_was_scrubbed_may_have_no_files_any_more(open_log: OpenLog) -> None:
    log = open_log()
    log.rebuild_indexes(0)
    assert log.root.failure is None


def test_a_segment_that_is_gone_writes_nothing_into_the_index_of_the_next(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    files = OpenFiles(disk, index_bytes_max=20)
    log = closed_segment(open_log, make_batch)
    log.close()
    log = open_log(index_interval_bytes=0, files=files, clean_shutdown=True)
    for _ in range(10):
        log.append_as_leader(make_batch(2), 0, NOW_MS)
    log.truncate_fully_and_start_at(40)  # where its active segment began
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    other = TopicPartition("flights", 1)

    def open_other(*, clean_shutdown: bool = False, **_: object) -> Log:
        return Log.open(
            disk, f"/data/{other}", other, LogConfig(), now_ms=NOW_MS, files=files, clean_shutdown=clean_shutdown
        )

    closed_segment(open_other, make_batch)  # its indexes need the room
    assert disk.read_bytes("/data/flights-0/00000000000000000040.index") == b""


def test_a_log_whose_indexes_could_not_be_written_is_not_closed_cleanly(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    log = open_log(index_interval_bytes=0)
    for number in range(20):
        log.append_as_leader(make_batch(2, time=NOW_MS + 1000 if number == 10 else NOW_MS), 0, NOW_MS)
    repair = platter.fail(FIRST + ".timeindex", errno.ENOSPC, ("write",))
    clean = True
    try:
        log.close_unsynced()
    except StorageError:
        clean = False
    repair()
    log = open_log(index_interval_bytes=0, clean_shutdown=clean)
    assert log.largest_timestamp() == NOW_MS + 1001


def test_what_a_roll_could_not_write_of_an_index_is_written_at_the_end(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk, platter: Platter
) -> None:
    log = open_log(index_interval_bytes=0)
    for number in range(20):
        log.append_as_leader(make_batch(2, time=NOW_MS + number), 0, NOW_MS)
    repair = platter.fail(FIRST + ".timeindex", errno.ENOSPC, ("write",))
    log.roll()
    repair()
    log.close_unsynced()
    assert len(disk.read_bytes(FIRST + ".timeindex")) == 19 * 12
