"""Where the last stable offset is held back: by the first of all that is open, or ended by a marker that is not replicated yet."""

from pathlib import Path

import pytest

from ottla.log.batch import TRANSACTIONAL, BatchHeader
from ottla.log.producers.state import Origin, ProducerStateManager
from ottla.log.records import EndMarker
from ottla.runtime.real_disk import RealDisk
from tests.unit.log.producers.test_state import header_of, marker_header

COMMIT, ABORT = EndMarker(True, 0), EndMarker(False, 0)
A, B, C = 7, 8, 9
DISK = RealDisk()


def write(producers: ProducerStateManager, pid: int, offset: int, sequence: int = 0, count: int = 1) -> None:
    producers.update(header_of(sequence, count, pid=pid, transactional=True), offset)


def end(producers: ProducerStateManager, pid: int, offset: int, marker: EndMarker = COMMIT) -> None:
    producers.update(marker_header(pid=pid), offset, marker)


@pytest.fixture
def producers() -> ProducerStateManager:
    return ProducerStateManager()


def test_what_is_open_holds_it_back_before_what_was_begun_later_and_has_ended(producers: ProducerStateManager) -> None:
    write(producers, A, 0)
    write(producers, B, 10)
    end(producers, B, 11)
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark(12)
    assert producers.first_unstable_offset == 0


def test_what_has_ended_holds_it_back_before_what_is_open(producers: ProducerStateManager) -> None:
    write(producers, A, 3)
    write(producers, B, 10)
    end(producers, A, 11)
    write(producers, C, 12)
    assert producers.first_unstable_offset == 3
    producers.on_high_watermark(11)
    assert producers.first_unstable_offset == 3, "the marker itself is not replicated"
    producers.on_high_watermark(12)
    assert producers.first_unstable_offset == 10


def test_of_several_that_ended_each_waits_for_its_own_marker(producers: ProducerStateManager) -> None:
    write(producers, A, 0)
    write(producers, B, 1)
    end(producers, B, 2)
    end(producers, A, 3)
    write(producers, C, 4)
    producers.on_high_watermark(3)
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark(4)
    assert producers.first_unstable_offset == 4


def test_of_several_that_ended_the_next_holds_it_back_though_another_is_open(producers: ProducerStateManager) -> None:
    write(producers, A, 0)
    write(producers, B, 3)
    end(producers, A, 5)
    write(producers, C, 10)
    end(producers, B, 12)
    producers.on_high_watermark(6)
    assert producers.first_unstable_offset == 3
    producers.on_high_watermark(13)
    assert producers.first_unstable_offset == 10


@pytest.mark.parametrize("pid", [0, A])
def test_a_producer_with_the_first_id_is_one(producers: ProducerStateManager, pid: int) -> None:
    write(producers, pid, 0)
    assert producers.producer_ids == [pid]


@pytest.mark.parametrize("first", [0, 5])
def test_a_transaction_begins_with_its_first_batch_whatever_follows(
    producers: ProducerStateManager, first: int
) -> None:
    write(producers, A, first)
    write(producers, A, first + 1, sequence=1)
    write(producers, B, first + 2)
    assert producers.open_transactions == {first: A, first + 2: B}
    end(producers, A, first + 3)
    producers.on_high_watermark(first + 4)
    assert producers.open_transactions == {first + 2: B}
    assert producers.first_unstable_offset == first + 2


def test_who_has_a_transaction_open_from_the_first_offset_on_is_not_forgotten(producers: ProducerStateManager) -> None:
    write(producers, A, 0)
    producers.expire(0, 10)
    assert producers.expire(1_000, 10) == 0
    assert producers.first_unstable_offset == 0


def test_a_transaction_that_begins_later_than_was_thought_stands_where_it_begins(
    producers: ProducerStateManager,
) -> None:
    write(producers, A, 0)
    write(producers, B, 5)
    write(producers, C, 9)
    producers.begin_open_at(A, 7)
    assert list(producers.open_transactions.items()) == [(5, B), (7, A), (9, C)]
    assert producers.first_unstable_offset == 5
    producers.begin_open_at(B, None)
    assert (producers.first_unstable_offset, producers.has_open(B, 0)) == (7, False)


def test_coordinators_records_repeat_nothing_though_none_has_a_sequence(producers: ProducerStateManager) -> None:
    """Offsets that a producer commits within a transaction: all of them have sequence -1."""
    header = BatchHeader(0, 49, 0, 2, 0, TRANSACTIONAL, 0, 100, 100, A, 0, -1, 1)
    for offset in (0, 1):
        assert producers.check(header, Origin.COORDINATOR) is None
        producers.update(header, offset)


def test_after_a_snapshot_whose_log_is_gone_what_was_open_in_it_is_not(
    producers: ProducerStateManager, tmp_path: Path
) -> None:
    """Its batches were deleted, and where it ends with them perhaps its marker."""
    write(producers, A, 0)
    producers.take_snapshot(DISK, str(tmp_path), 10)
    loaded = ProducerStateManager()
    assert loaded.load(DISK, str(tmp_path), first_offset=20, log_end_offset=30) == 20
    assert (loaded.first_unstable_offset, loaded.has_open(A, 0)) == (None, False)
    write(loaded, A, 20, sequence=1)
    assert loaded.open_transactions == {20: A}


def test_what_was_open_where_the_log_begins_with_a_snapshot_is_open(
    producers: ProducerStateManager, tmp_path: Path
) -> None:
    write(producers, A, 0)
    producers.take_snapshot(DISK, str(tmp_path), 10)
    loaded = ProducerStateManager()
    assert loaded.load(DISK, str(tmp_path), first_offset=10, log_end_offset=30) == 10
    assert loaded.has_open(A, 0)


@pytest.mark.parametrize(("offset", "taken"), [(9, 0), (10, 10), (11, 10)])
def test_state_is_resumed_from_the_last_snapshot_that_is_not_beyond(
    producers: ProducerStateManager, tmp_path: Path, offset: int, taken: int
) -> None:
    write(producers, A, 0)
    producers.take_snapshot(DISK, str(tmp_path), 10)
    resumed = ProducerStateManager()
    assert resumed.resume(DISK, str(tmp_path), offset) == taken
    assert resumed.has_open(A, 0) == (taken == 10)
