"""Every operation of a disk fails once, at every point of a log's life (`failing_once`)."""

import errno

import pytest

from ottla.log.segments import index
from tests.unit.log.failing_once import Scenario, Trial, fail_every_operation, with_settings


@pytest.fixture(autouse=True)
def _indexes_are_written_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.segments.files.ENTRIES_PER_WRITE", 1)
    assert index.ENTRIES_PER_WRITE > 1


def lead(trial: Trial) -> None:
    """Batches, rolls and flushes of a leader."""
    trial.begin()
    trial.append(5)
    trial.flush()
    trial.append(9)
    trial.attempt(trial.log.roll)
    trial.append(3)
    trial.flush()
    trial.append(2)


def follow(trial: Trial) -> None:
    """A follower, whose log gets gaps, at last one that is too wide for its segment."""
    trial.begin()
    trial.append(6, leads=False)
    trial.flush()
    trial.jump_to(trial.next_offset + 3)
    trial.append(5, leads=False)
    trial.attempt(trial.log.roll)
    trial.jump_to(trial.next_offset + 2**31 + 5)
    trial.append(3, leads=False)


def truncate(trial: Trial) -> None:
    trial.begin()
    trial.append(15, leads=False)
    trial.flush()
    trial.epoch = 1
    trial.append(5, leads=False)
    trial.truncate_to(17)
    trial.append(2, leads=False)
    trial.truncate_to(4)
    trial.epoch = 2
    trial.append(6, leads=False)
    trial.flush()


def restart(trial: Trial) -> None:
    trial.begin()
    trial.append(9, leads=False)
    trial.flush()
    trial.restart_at(100)
    trial.append(5, leads=False)
    trial.flush()
    trial.restart_at(50)
    trial.append(2, leads=False)


def delete(trial: Trial) -> None:
    trial.begin()
    trial.append(16)
    trial.flush()
    trial.retain()
    trial.append(2)
    trial.purge(0)
    trial.purge(10_000)
    trial.delete_records(17)
    trial.retain()
    trial.append(2)
    trial.flush()


def abort(trial: Trial) -> None:
    """Transactions that a follower sees fail; the index of them is found on disk, and made there."""
    trial.begin()
    for producer_id in (20, 21, 22):
        trial.transaction(producer_id, offsets=3)
    trial.flush()
    trial.read_aborted()
    trial.stop("close")
    trial.start()
    trial.transaction(23, offsets=1)
    trial.attempt(trial.log.roll)
    trial.transaction(24, offsets=2)
    trial.read_aborted()
    trial.flush()


def compact(trial: Trial) -> None:
    trial.keys = 3
    trial.begin(with_settings(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0))
    trial.append(14)
    trial.flush()
    trial.append(2)
    trial.clean()
    trial.append(3)
    trial.purge(0)
    trial.purge(10_000)
    trial.flush()


def use_the_name_again(trial: Trial) -> None:
    trial.begin()
    trial.append(7)
    trial.flush()
    trial.delete_topic()
    trial.begin_anew()
    trial.append(3)
    trial.flush()
    trial.purge(10_000_000)


def start(trial: Trial) -> None:
    """The failure is met by a start, which may say so; the next one is as if it had not been."""
    trial.begin()
    trial.append(9)
    trial.flush()
    trial.append(3)
    trial.log.set_high_watermark(4)
    trial.log.advance_log_start(2)
    trial.start_offset_moved(2)
    trial.stop("kill")
    trial.start()
    trial.append(2)
    trial.stop("close")
    trial.start()
    trial.append(2)


SCENARIOS = [lead, follow, truncate, restart, delete, abort, compact, use_the_name_again, start]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC, errno.EIO], ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_operation_that_fails_leaves_the_log_whole(scenario: Scenario, error: int) -> None:
    assert fail_every_operation(scenario, error) > 10
