"""What is compacted, when, and in which groups (kraft.md 4.7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.compaction.plan import DirtyRange, LogFacts, SegmentInfo, choose, dirty_range, group_segments
from ottla.log.config import LogConfig

NOW = 1_000_000
COMPACT = LogConfig(cleanup_policy=("compact",))
SEGMENTS = [
    SegmentInfo(base, base + 10, 100, first_timestamp=base * 1000, largest_timestamp=base * 1000 + 999)
    for base in range(0, 40, 10)
]


def state(
    config: LogConfig = COMPACT, *, segments: list[SegmentInfo] = SEGMENTS, start: int = 0, stable: int = 45
) -> LogFacts:
    return LogFacts(segments, 40, start, stable, config)


def test_a_log_never_cleaned_is_all_dirty_up_to_the_active_segment() -> None:
    found = dirty_range(state(), None, NOW)
    assert (found.first_dirty, found.first_uncleanable, found.dirty_bytes, found.ratio) == (0, 40, 400, 1.0)


def test_the_ratio_is_dirty_bytes_of_all_cleanable_ones() -> None:
    found = dirty_range(state(), 30, NOW)
    assert (found.first_dirty, found.first_uncleanable, found.dirty_bytes, found.ratio) == (30, 40, 100, 0.25)


def test_a_checkpoint_inside_a_segment_makes_that_segment_dirty() -> None:
    assert dirty_range(state(), 25, NOW).dirty_bytes == 200


@pytest.mark.parametrize("checkpoint", [4, 41])
def test_a_checkpoint_outside_the_log_counts_as_none(checkpoint: int) -> None:
    assert dirty_range(state(start=5), checkpoint, NOW).first_dirty == 5


def test_open_transactions_keep_whole_segments_back() -> None:
    assert dirty_range(state(stable=29), None, NOW).first_uncleanable == 20
    assert dirty_range(state(stable=30), None, NOW).first_uncleanable == 30
    assert dirty_range(state(stable=0), None, NOW).dirty_bytes == 0


def test_young_records_keep_back_their_segment_and_all_behind_it() -> None:
    config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=100)
    assert dirty_range(state(config), None, 20_999 + 100).first_uncleanable == 30
    assert dirty_range(state(config), None, 20_999 + 99).first_uncleanable == 20


def test_nothing_closed_is_nothing_dirty() -> None:
    found = dirty_range(state(segments=[]), None, NOW)
    assert (found.dirty_bytes, found.ratio) == (0, 0.0)
    assert not found.is_due(COMPACT)


def test_a_log_is_due_above_its_ratio() -> None:
    config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.25)
    assert not dirty_range(state(config), 30, NOW).is_due(config)
    assert dirty_range(state(config), 20, NOW).is_due(config)


def test_a_log_is_due_when_its_oldest_dirty_record_is_too_old() -> None:
    config = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=500)
    assert not dirty_range(state(config), 30, 30_500).is_due(config)
    assert dirty_range(state(config), 30, 30_501).is_due(config)


def test_the_dirtiest_due_log_is_cleaned_first() -> None:
    due = [
        (name, DirtyRange(0, 1, 1, ratio, overdue), COMPACT)
        for name, ratio, overdue in [("a", 0.6, False), ("b", 0.9, False), ("c", 0.3, True)]
    ]
    assert choose(due) == "b"
    assert choose(due[2:]) == "c"
    assert (
        choose([("d", DirtyRange(0, 1, 1, 0.4, False), COMPACT), ("e", DirtyRange(0, 0, 0, 0.0, True), COMPACT)])
        is None
    )


def test_neighbours_that_fit_share_a_segment() -> None:
    assert [[s.base_offset for s in group] for group in group_segments(SEGMENTS, 250, 1000)] == [[0, 10], [20, 30]]
    assert [[s.base_offset for s in group] for group in group_segments(SEGMENTS, 50, 1000)] == [[0], [10], [20], [30]]


def test_index_sizes_and_offset_distances_limit_a_group() -> None:
    large = [SegmentInfo(base, base + 10, 1, index_bytes=80, time_index_bytes=60) for base in (0, 10)]
    assert len(group_segments(large, 1000, 160)) == 1
    assert len(group_segments(large, 1000, 159)) == 2
    wide = [SegmentInfo(0, 10, 1), SegmentInfo(10, 2**31 - 1, 1), SegmentInfo(2**31 - 1, 2**31, 1)]
    assert [len(group) for group in group_segments(wide, 1000, 1000)] == [2, 1]


@given(st.lists(st.integers(0, 120), max_size=30), st.integers(1, 300))
def test_groups_hold_every_segment_once_in_order(sizes: list[int], limit: int) -> None:
    segments = [SegmentInfo(i, i + 1, size) for i, size in enumerate(sizes)]
    groups = group_segments(segments, limit, 100)
    assert [segment for group in groups for segment in group] == segments
    assert all(len(group) == 1 or sum(segment.size_bytes for segment in group) <= limit for group in groups)
