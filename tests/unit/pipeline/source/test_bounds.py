"""Where a query begins and ends, as offsets."""

import pytest

from ottla.pipeline.source.bounds import Bound, Kind, answered, questions, too_late
from ottla.pipeline.source.errors import OffsetError
from ottla.pipeline.wire.offsets import EARLIEST, LATEST

A, B = ("t", 0), ("t", 1)


def test_the_ends_and_a_time_are_asked_of_every_partition() -> None:
    assert questions(Bound(Kind.EARLIEST, "startingOffsets"), [A, B]) == {A: EARLIEST, B: EARLIEST}
    assert questions(Bound(Kind.LATEST, "endingOffsets"), [A]) == {A: LATEST}
    assert questions(Bound(Kind.TIME, "startingTimestamp", ms=7), [A]) == {A: 7}


def test_offsets_are_not_asked_for_but_where_they_stand_for_an_end() -> None:
    bound = Bound(Kind.OFFSETS, "startingOffsets", {A: 5, B: EARLIEST})

    assert questions(bound, [A, B]) == {B: EARLIEST}
    assert answered(bound, {B: 2}) == ({A: 5, B: 2}, [])


def test_a_time_that_no_record_is_as_young_as_is_named() -> None:
    bound = Bound(Kind.TIMES, "startingOffsetsByTimestamp", {A: 1, B: 2})

    assert answered(bound, {A: 4, B: -1}) == ({A: 4, B: -1}, [B])
    assert "t-1 has no record of that time or after" in str(too_late(bound, [B]))


def test_a_bound_by_partition_names_each_and_no_other() -> None:
    bound = Bound(Kind.OFFSETS, "startingOffsets", {A: 5})
    with pytest.raises(
        OffsetError, match=r"startingOffsets must name every partition; t-1 is missing \(-2 is the earliest"
    ):
        questions(bound, [A, B])
    with pytest.raises(OffsetError, match="names t-0, which this query does not read"):
        questions(bound, [])
