"""Filters that narrow what is read."""

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ottla.pipeline.source.filters import Wanted, is_about_places, narrowed, wanted_of

A, B = ("t", 0), ("t", 1)
AT = datetime(2026, 1, 1, tzinfo=UTC)
AT_MS = 1_767_225_600_000


def narrow(*filters: Filter, found: int = -1) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    return narrowed(wanted_of(filters), {A: 10, B: 20}, {A: 100, B: 200}, lambda times: dict.fromkeys(times, found))


def test_partitions_and_topics_that_are_not_wanted_are_not_read() -> None:
    wanted = wanted_of([In(("partition",), (1, 2)), GreaterThan(("partition",), 1), EqualTo(("topic",), "t")])

    assert [which for which in (("t", 1), ("t", 2), ("u", 2), ("t", 3)) if wanted.takes(which)] == [("t", 2)]


def test_offsets_narrow_both_ends() -> None:
    assert narrow(GreaterThan(("offset",), 49), LessThanOrEqual(("offset",), 60)) == ({A: 50, B: 50}, {A: 61, B: 61})
    assert narrow(GreaterThanOrEqual(("offset",), 15), LessThan(("offset",), 150)) == ({A: 15, B: 20}, {A: 100, B: 150})
    assert narrow(EqualTo(("offset",), 33)) == ({A: 33, B: 33}, {A: 34, B: 34})


def test_a_time_narrows_the_start_alone_since_times_need_not_rise() -> None:
    assert wanted_of([GreaterThanOrEqual(("timestamp",), AT)]).ms_first == AT_MS
    assert narrow(GreaterThanOrEqual(("timestamp",), AT), found=70) == ({A: 70, B: 70}, {A: 100, B: 200})
    assert narrow(LessThan(("timestamp",), AT), found=70) == ({A: 10, B: 20}, {A: 100, B: 200})
    assert narrow(GreaterThan(("timestamp",), AT), found=-1)[0] == {A: 100, B: 200}  # nothing is as young


def test_a_time_before_1970_is_no_word_of_list_offsets() -> None:
    """There -1 is the end, and -3 the record with the latest time."""
    before = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)

    assert narrow(GreaterThanOrEqual(("timestamp",), before), found=70) == ({A: 10, B: 20}, {A: 100, B: 200})


def test_filters_of_other_columns_say_nothing() -> None:
    others = [
        EqualTo(("key",), b"k"),
        IsNotNull(("offset",)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("offset",), None),
    ]

    assert wanted_of(others) == Wanted()
    assert not any(map(is_about_places, others))
    assert is_about_places(EqualTo(("Partition",), 1))
