"""What may be forgotten: the plan as a table, and its execution."""

from collections.abc import Callable

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.retention import SegmentFacts, plan
from ottla.runtime.simulation.disk import SimulatedDisk

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/flights-0"
SEGMENTS = [SegmentFacts(10 * number, 100, 1000 * number) for number in range(1, 6)]  # 500 bytes, ends 10..50

PLANS = [
    # name, settings, log start, high watermark, now, how many go
    ("nothing is old", {"retention_ms": 5000}, 0, 50, 5000, 0),
    ("the old ones go", {"retention_ms": 2500}, 0, 50, 5000, 2),
    ("no limit of age", {"retention_ms": -1}, 0, 50, 10**15, 0),
    ("nothing above the high watermark", {"retention_ms": 0}, 0, 35, 9999, 3),
    ("the largest ones go by size", {"retention_ms": -1, "retention_bytes": 250}, 0, 50, 0, 2),
    ("a segment goes only when enough stays", {"retention_ms": -1, "retention_bytes": 301}, 0, 50, 0, 1),
    ("just the limit stays", {"retention_ms": -1, "retention_bytes": 500}, 0, 50, 0, 0),
    ("below the log start", {"retention_ms": -1}, 30, 50, 0, 3),
    ("a segment that holds the log start stays", {"retention_ms": -1}, 29, 50, 0, 2),
    ("compacted logs do not age", {"retention_ms": 0, "cleanup_policy": ("compact",)}, 0, 50, 9999, 0),
    ("compacted logs have a start", {"retention_ms": 0, "cleanup_policy": ("compact",)}, 20, 50, 9999, 2),
    ("both policies", {"retention_ms": 2500, "cleanup_policy": ("compact", "delete")}, 0, 50, 5000, 2),
]


@pytest.mark.parametrize(
    ("name", "settings", "start", "high_watermark", "now", "count"), PLANS, ids=[p[0] for p in PLANS]
)
def test_the_plan(
    name: str, settings: dict[str, object], start: int, high_watermark: int, now: int, count: int
) -> None:
    config = LogConfig(**settings)  # type: ignore[arg-type]  # keywords of many types
    found = plan(SEGMENTS, config, total_bytes=500, log_start_offset=start, high_watermark=high_watermark, now_ms=now)
    assert found == count


@pytest.mark.parametrize(
    ("settings", "start", "now", "count"),
    [
        ({"retention_ms": -1, "retention_bytes": 200}, 0, 0, 3),
        ({"retention_ms": 2500}, 0, 5000, 3),
        ({"retention_ms": 5000}, 0, 5000, 0),
        ({"retention_ms": -1, "retention_bytes": 400}, 0, 0, 0),
        ({"retention_ms": -1}, 10, 0, 1),
    ],
    ids=["by size", "by age", "nothing behind it is old", "nothing is too much", "below the log start"],
)
def test_a_segment_of_which_compaction_left_nothing_goes_with_the_next_one(
    settings: dict[str, object], start: int, now: int, count: int
) -> None:
    """What it says of its age is when it was cleaned; alone it stays, for readers may be at its offsets."""
    config = LogConfig(cleanup_policy=("compact", "delete"), **settings)  # type: ignore[arg-type]  # keywords of many types
    behind = [SegmentFacts(10 * number, 100, 1000 * (number - 1)) for number in range(2, 6)]
    segments = [SegmentFacts(10, 0, 100_000), *behind]
    found = plan(segments, config, total_bytes=400, log_start_offset=start, high_watermark=50, now_ms=now)
    assert found == count


def fill(log: Log, make_batch: MakeBatch) -> None:
    for number in range(30):
        log.append_as_leader(make_batch(2, time=NOW_MS + number), 0, NOW_MS)
    log.set_high_watermark(60)


def test_old_segments_are_renamed_now_and_unlinked_later(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(segment_bytes=500, retention_ms=1000, file_delete_delay_ms=60_000)
    fill(log, make_batch)
    bases = [segment.base_offset for segment in log.segments]
    first_left = NOW_MS + bases[3] // 2
    assert log.delete_old_segments(first_left + 1001) == bases[:3]
    assert log.log_start_offset == bases[3]
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    names = disk.list_directory(DIRECTORY)
    assert f"{bases[0]:020d}.log.deleted" in names
    assert f"{bases[0]:020d}.log" not in names
    assert log.purge(NOW_MS) == 9
    assert log.purge(NOW_MS + 59_999) == 9
    assert log.purge(NOW_MS + 60_000) == 0
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".deleted")]
    assert log.root.condemned == {}


def test_an_old_active_segment_is_closed_first(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_bytes=500, retention_ms=1000)
    fill(log, make_batch)
    assert log.delete_old_segments(NOW_MS + 5000)
    assert [segment.base_offset for segment in log.segments] == [60]
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
    assert log.delete_old_segments(NOW_MS + 50_000) == []
    assert log.append_as_leader(make_batch(2), 0, NOW_MS).first_offset == 60


def test_records_without_times_age_by_their_file(open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk) -> None:
    log = open_log(segment_bytes=300, retention_ms=1000)
    for _ in range(10):
        log.append_as_leader(make_batch(2, time=-2), 0, NOW_MS)
    log.set_high_watermark(20)
    written = disk.modified_ms(log.segments[0].path)
    assert log.delete_old_segments(written + 1000) == []
    assert log.delete_old_segments(written + 1001) != []


def test_snapshots_of_deleted_segments_go_too(open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk) -> None:
    log = open_log(segment_bytes=500, retention_ms=1000)
    fill(log, make_batch)
    log.delete_old_segments(NOW_MS + 1020)
    snapshots = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".snapshot")]
    assert snapshots
    assert min(int(name[:20]) for name in snapshots) >= log.segments[0].base_offset


def test_a_restart_sweeps_condemned_files_up(open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk) -> None:
    log = open_log(segment_bytes=500, retention_ms=1000)
    fill(log, make_batch)
    log.delete_old_segments(NOW_MS + 1010)
    start = log.log_start_offset
    assert start > 0
    log.close()
    again = open_log(segment_bytes=500, clean_shutdown=True)
    assert again.log_start_offset == start
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".deleted")]
