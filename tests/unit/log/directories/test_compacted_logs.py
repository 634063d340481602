"""Compacted logs and what is written about them at the root of their directory: where epochs began, and how far there may be gaps."""

import errno

import pytest

from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.directories.manager import LogManager
from ottla.log.directories.moves import finish_move
from ottla.log.log import Log
from ottla.log.records import Record, encode_batch
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.conftest import NOW_MS
from tests.unit.log.directories.test_moves import NAME, TOPIC_ID, content, copied, formatted, manager_on

COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=700, min_cleanable_dirty_ratio=0.0)


@pytest.fixture
def platter() -> Platter:
    return formatted(1)


def compacted(manager: LogManager) -> Log:
    """Of epoch 5 compaction left nothing but its last records."""
    log = manager.get_or_create(NAME, COMPACTED, TOPIC_ID, manager.roots[0].directory_id, now_ms=NOW_MS)
    append_keys(log, 4, 10)
    append_keys(log, 5, 20)
    append_keys(log, 6, 10)
    log.roll()
    append_keys(log, 6, 1)
    log.flush()
    manager.checkpoints.save_points()
    cleaner = LogCleaner(manager.disk, CleanerSettings(), manager.checkpoints.cleaned)
    task = cleaner.next_task([log], NOW_MS)
    assert task is not None
    outcome = Outcome(result=clean(manager.disk, task.job))
    cleaner.foretell(task, outcome)
    assert cleaner.install(task, outcome)
    cleaner.record(task)
    return log


@pytest.mark.parametrize("file", [RECOVERY_POINTS, LOG_START_OFFSETS])
def test_where_a_compacted_log_may_have_gaps_is_lowered_after_all_else(platter: Platter, file: str) -> None:
    """Where the cut then does not come, a start that lost the recovery point would drop all behind the first gap."""
    manager = manager_on(platter)
    log = compacted(manager)
    log.advance_log_start(35)
    manager.checkpoints.save_points()
    cleaned = manager.checkpoints.cleaned
    before = cleaned.gaps_to(log.root.path, log.key)
    assert before > 5
    platter.fail(f"{log.root.path}/{file}", errno.ENOSPC, ("rename",))
    assert log.root.lower_points is not None
    with pytest.raises(OSError, match="No space"):
        log.root.lower_points({log.key: 5})
    assert CleanedOffsets(manager.disk).gaps_to(log.root.path, log.key) == before


def append_keys(log: Log, epoch: int, count: int) -> None:
    for number in range(count):
        log.append_as_leader(encode_batch([Record(0, NOW_MS, b"%d" % (number % 3), b"v")]), epoch, NOW_MS)
    log.set_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("end", ["kill", "power"])
def test_where_epochs_began_in_what_was_compacted_is_known_behind_a_move_and_a_crash(
    platter: Platter, end: str
) -> None:
    """From what compaction left nobody could tell, and a follower with a tail of an old epoch would be told that it has the same."""
    manager = manager_on(platter)
    log = compacted(manager)
    assert log.epochs.entries() == ((4, 0), (5, 10), (6, 30))
    moved = finish_move(manager, copied(manager, log), NOW_MS)
    expected = content(moved)
    if end == "power":
        platter.power_loss()
    else:
        platter.close_sessions()
    again = manager_on(platter).logs[NAME]
    assert again.directory == "/b/flights-0"
    assert again.epochs.entries() == ((4, 0), (5, 10), (6, 30))
    assert (again.recovery_point, content(again)) == (moved.log_end_offset, expected)
