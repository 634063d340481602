"""Durations are told as they spread, whatever their size, and forgotten after a minute."""

from random import Random

import pytest

from ottla.runtime.recent import PAGES, RecentDurations


def test_percentiles_are_within_two_percent_of_the_true_ones_from_microseconds_to_hours() -> None:
    rng = Random(1)
    values = [10 ** rng.uniform(-6, 4) for _ in range(20_000)]
    durations = RecentDurations()
    for value in values:
        durations.record(value)
    quantiles = (0.5, 0.75, 0.95, 0.99, 0.999)
    values.sort()
    true = [values[int(quantile * len(values)) - 1] for quantile in quantiles]
    assert durations.percentiles(quantiles) == pytest.approx(true, rel=0.02)


def test_the_longest_is_exact_and_no_percentile_is_above_it() -> None:
    durations = RecentDurations()
    durations.record(0.1234)
    assert durations.longest_s == 0.1234
    assert max(durations.percentiles((0.99, 1.0)) or ()) <= 0.1234


def test_one_that_stands_for_many_counts_as_many() -> None:
    durations = RecentDurations()
    durations.record(1.0, weight=90)
    durations.record(5.0, weight=10)
    assert durations.percentiles((0.9, 0.95)) == pytest.approx([1.0, 5.0], rel=0.02)


def test_nothing_tells_nothing_and_a_clock_that_stood_still_tells_0() -> None:
    durations = RecentDurations()
    assert durations.percentiles((0.5,)) is None
    durations.record(0.0)
    durations.record(-1.0)
    assert durations.percentiles((0.5, 0.99)) == [0.0, 0.0]


def test_the_oldest_page_goes() -> None:
    durations = RecentDurations()
    durations.record(3.0)
    for _ in range(PAGES - 1):
        durations.turn_page()
        durations.record(1.0)
    assert durations.longest_s == 3.0
    durations.turn_page()
    assert durations.longest_s == 1.0
    for _ in range(PAGES):
        durations.turn_page()
    assert durations.percentiles((0.5,)) is None


def test_several_are_told_as_one() -> None:
    few, many = RecentDurations(), RecentDurations()
    few.record(9.0)
    many.record(1.0, weight=99)
    assert many.percentiles((0.5, 1.0), [few]) == pytest.approx([1.0, 9.0], rel=0.02)
