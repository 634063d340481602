"""What an unclean election explains, and what it does not."""

from typing import Any

import pytest

from ottla.testing.checker import Kind, Unclean
from ottla.testing.checker.operations import AnyOperation
from tests.unit.testing.checker.anomalies.case import ABC
from tests.unit.testing.checker.story import (
    OK,
    asked,
    committed,
    delivered,
    final,
    given,
    judged,
    kinds,
    read,
    tried,
    wrote,
)


def unclean(begin: int, end: int, **more: int) -> Unclean:
    told: dict[str, Any] = {"partition": 0, **more}
    return Unclean(topic="t", begin=begin, end=end, outcome=OK, **told)


LOSING: list[AnyOperation] = [
    *ABC,
    read("a", "b", "c", begin=40),
    wrote("d", 2, 80),
    final("a", "b", "d"),
]


def test_a_loss_by_an_unclean_election_is_permitted_and_told() -> None:
    report = judged(*LOSING, unclean(60, 61))
    assert report.anomalies == []
    assert {(each.kind, each.where) for each in report.permitted} == {(Kind.LOST, "t-0"), (Kind.OFFSET_CHANGED, "t-0")}
    assert report.exit_code == 0


@pytest.mark.parametrize(
    "event",
    [unclean(5, 6), unclean(60, 61, partition=1), unclean(60, 61, from_offset=3)],
    ids=["before it was written", "of another partition", "behind it"],
)
def test_a_loss_that_no_unclean_election_explains_is_a_failure(event: Unclean) -> None:
    assert Kind.LOST in kinds(*LOSING, event)


def test_two_records_at_one_offset_are_permitted_only_across_the_election() -> None:
    seen: list[AnyOperation] = [
        tried("b", 9),
        tried("x", 9),
        delivered((1, "b"), begin=20),
        delivered((1, "x"), begin=30),
    ]
    assert kinds(*seen, unclean(25, 26)) == set()
    assert kinds(*seen, unclean(50, 51)) == {Kind.OFFSET_CHANGED}


def test_what_is_there_twice_no_election_permits() -> None:
    assert Kind.DUPLICATED in kinds(*ABC[:2], final("a", "b", "b"), unclean(60, 61))


STAMPED: list[AnyOperation] = [
    wrote("a", 0, 10, timestamp=1000),
    wrote("b", 1, 20, timestamp=2000),
    wrote("c", 2, 30, timestamp=3000),
    wrote("e", 3, 34, timestamp=4000),
]


TAKEN: list[AnyOperation] = [wrote("d", 2, 80, timestamp=5000), final("a", "b", "d")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((4000, 3), None),
        ((4000, 3), (4500, 2)),
        ((4000, 3), (4000, 2)),
        (("latest", 4), ("latest", 3)),
    ],
    ids=["as its producer timed it", "a later time", "the same time", "the end"],
)
def test_an_offset_that_was_told_changes_only_where_an_election_took_its_record(
    before: tuple[str | int, int], after: tuple[str | int, int] | None
) -> None:
    told: list[AnyOperation] = [asked(*before, begin=45, process="r")]
    if after is not None:
        told.append(asked(*after, begin=90, process="r"))
    history = [*STAMPED, *told, *TAKEN]
    report = judged(*history, unclean(60, 61, from_offset=2))
    assert report.anomalies == []
    assert Kind.OFFSET_CHANGED in {each.kind for each in report.permitted}
    for elsewhere in (unclean(60, 61, from_offset=4), unclean(60, 61, from_offset=2, partition=1), unclean(5, 6)):
        assert Kind.OFFSET_CHANGED in kinds(*history, elsewhere)


def test_a_member_begins_anew_only_where_an_election_took_what_its_group_had_read() -> None:
    history: list[AnyOperation] = [
        *ABC,
        committed(3, 40),
        given("m2", 70),
        read("a", begin=75, process="m2", group="g"),
        final("a", "b"),
    ]
    assert kinds(*history, unclean(60, 61, from_offset=2)) == set()
    assert Kind.REWOUND in kinds(*history, unclean(60, 61, from_offset=3))
