"""What cannot be judged, and how much is told."""

from ottla.testing.checker import Isolation, Kind
from tests.unit.testing.checker.anomalies.case import ABC
from tests.unit.testing.checker.story import (
    UNKNOWN,
    admin,
    final,
    judged,
    wrote,
)


def test_without_a_final_read_nobody_knows_what_is_lost() -> None:
    report = judged(*ABC)
    assert [each.sentence for each in report.unknown] == [
        "nobody read it at the end: whether acknowledged records are lost is not known"
    ]
    assert (report.valid, report.exit_code) == (False, 2)


def test_a_final_read_that_came_to_no_end_judges_nothing_behind_it() -> None:
    report = judged(*ABC, final("a", next=-1))
    assert report.exit_code == 2
    assert report.anomalies == []


def test_what_a_final_read_did_not_come_to_tells_no_replicas_apart() -> None:
    for unfinished, whole in (
        (final(next=-1), final("a", "b", "c", isolation=Isolation.COMMITTED)),
        (final("a", next=-1), final("a", "b", "c", replica=2)),
        (final("a", "b", "c"), final("a", next=-1, isolation=Isolation.COMMITTED)),
        (final("a", "b", "c"), final("a", next=-1, replica=2)),
    ):
        report = judged(*ABC, unfinished, whole)
        assert [str(each) for each in report.anomalies] == []


def test_many_requests_for_one_topic_that_nobody_answered_are_judged() -> None:
    unanswered = [
        admin(
            ("create", "alter", "delete")[number % 3], None if number % 3 == 2 else str(number), number, number, UNKNOWN
        )
        for number in range(90)
    ]
    assert judged(*unanswered, admin("describe", "88", 200, 201)).valid
    report = judged(
        *unanswered,
        admin("describe", "88", 200, 201),
        admin("describe", "55", 300, 301),
        admin("describe", "88", 400, 401),
    )
    assert {each.kind for each in report.anomalies} == {Kind.METADATA_NOT_LINEARIZABLE}


def test_many_findings_of_one_kind_are_counted_and_few_are_told() -> None:
    report = judged(*(wrote(str(number), number, number * 10) for number in range(50)), final())
    assert len(report.anomalies) == 10
    assert "and 40 more" in str(report)
