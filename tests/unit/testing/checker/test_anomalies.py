"""A history for each anomaly that the checker says it sees, and one beside it that is fine."""

from typing import Any, NamedTuple

import pytest

from ottla.testing.checker import Deleted, Kind, Topic, Unclean
from ottla.testing.checker.operations import AnyOperation
from tests.unit.testing.checker.story import (
    COMMITTED,
    FAIL,
    OK,
    UNKNOWN,
    admin,
    asked,
    committed,
    delivered,
    ended,
    final,
    given,
    got,
    judged,
    kinds,
    read,
    tried,
    wrote,
)

ABC: list[AnyOperation] = [wrote("a", 0, 10), wrote("b", 1, 20), wrote("c", 2, 30)]
WHOLE = final("a", "b", "c")
COMPACTED = Topic(topic="t", compacted=True)


class Case(NamedTuple):
    """``words``: of what a finding says."""

    name: str
    kind: Kind
    words: str
    wrong: list[AnyOperation]
    fine: list[AnyOperation]


RECORDS = [
    Case(
        "an acknowledged record is not there",
        Kind.LOST,
        "'c' was acknowledged at offset 2: nothing is there",
        [*ABC, final("a", "b")],
        [*ABC[:2], tried("c", 30), final("a", "b")],
    ),
    Case(
        "one that was acknowledged somewhere is nowhere",
        Kind.LOST,
        "'c' was acknowledged and is nowhere",
        [*ABC[:2], wrote("c", -1, 30), final("a", "b")],
        [*ABC[:2], wrote("c", -1, 30), final("a", "b", "c")],
    ),
    Case(
        "another is in its place",
        Kind.LOST,
        "'b' was acknowledged at offset 1: there is 'x'",
        [*ABC, tried("x", 25), final("a", "x", "c")],
        [*ABC, tried("x", 25), final("a", "b", "c", "x")],
    ),
    Case(
        "the beginning is gone and nobody deleted it",
        Kind.LOST,
        "'a' was acknowledged at offset 0",
        [*ABC, final("b", "c", start=1)],
        [*ABC, Deleted(topic="t", partition=0, before=1, outcome=OK), final("b", "c", start=1)],
    ),
    Case(
        "the last record of a key is not there",
        Kind.LOST,
        "'b' was acknowledged",
        [COMPACTED, wrote("a", 0, 10, key="k"), wrote("b", 1, 20, key="k"), final("a", None)],
        [COMPACTED, wrote("a", 0, 10, key="k"), wrote("b", 1, 20, key="k"), final(None, "b")],
    ),
    Case(
        "a record is there twice",
        Kind.DUPLICATED,
        "'b' was written once and is at the offsets 1, 2",
        [*ABC[:2], final("a", "b", "b")],
        [ABC[0], wrote("b", 1, 20, idempotent=False), final("a", "b", "b")],
    ),
    Case(
        "one that was sent twice is there three times",
        Kind.DUPLICATED,
        "at the offsets 1, 2, 3",
        [*ABC[:2], tried("b", 30), final("a", "b", "b", "b")],
        [*ABC[:2], tried("b", 30), final("a", "b", "b")],
    ),
    Case(
        "a reader is given a record again",
        Kind.DUPLICATED,
        "offset 1 was given again to a reader that had come to 2",
        [*ABC, delivered((1, "b"), (2, "c"), begin=40, start=2), WHOLE],
        [*ABC, delivered((1, "b"), (2, "c"), begin=40, start=1), WHOLE],
    ),
    Case(
        "a producer's records changed their order",
        Kind.REORDERED,
        "p wrote 'a' before 'b', and it stands behind it",
        [tried("a", 10, producer="p", sequence=1), tried("b", 11, producer="p", sequence=2), final("b", "a")],
        [tried("a", 10, producer="p", sequence=1), tried("b", 11, producer="q", sequence=2), final("b", "a")],
    ),
    Case(
        "who wrote later stands before",
        Kind.REORDERED,
        "offset 1 was acknowledged before what is at 0 was sent",
        [wrote("a", 1, 10, end=15), wrote("b", 0, 20), final("b", "a")],
        [wrote("a", 1, 10, end=25), wrote("b", 0, 20), final("b", "a")],
    ),
    Case(
        "a final read goes back",
        Kind.REORDERED,
        "offsets that do not rise",
        [*ABC, delivered((0, "a"), (2, "c"), (1, "b"), begin=1000, start=0, next=3, final=True)],
        [*ABC, delivered((0, "a"), (1, "b"), (2, "c"), begin=1000, start=0, next=3, final=True)],
    ),
    Case(
        "a read lacks what was acknowledged before",
        Kind.STALE,
        "r was told that 2 is the end; offset 2 was acknowledged before it asked",
        [*ABC, read("a", "b", begin=40, fresh=True), WHOLE],
        [*ABC, read("a", "b", begin=30, fresh=True), WHOLE],
    ),
    Case(
        "a replica that is not the leader may be late",
        Kind.STALE,
        "offset 2 was acknowledged",
        [*ABC, read("a", "b", begin=40, fresh=True), WHOLE],
        [*ABC, read("a", "b", begin=40), WHOLE],
    ),
    Case(
        "the end was told too low",
        Kind.STALE,
        "l was told that 1 is the end",
        [*ABC, asked("latest", 1, 40, fresh=True), WHOLE],
        [*ABC, asked("latest", 1, 12, fresh=True), WHOLE],
    ),
    Case(
        "a reader is not given a record",
        Kind.SKIPPED,
        "r read on to 2 and was not given 1",
        [*ABC, delivered((0, "a"), (2, "c"), begin=40, start=0, next=3), WHOLE],
        [*ABC, delivered((0, "a"), (2, "c"), begin=40, start=0, next=3), COMPACTED, WHOLE],
    ),
    Case(
        "a reader passes over the end of what it was given",
        Kind.SKIPPED,
        "not given 2",
        [*ABC, delivered((0, "a"), (1, "b"), begin=40, start=0, next=3), WHOLE],
        [*ABC, delivered((0, "a"), (1, "b"), begin=40, start=0, next=2), WHOLE],
    ),
    Case(
        "a record that nobody wrote",
        Kind.PHANTOM,
        "'x' is at offset 3: nobody wrote it",
        [*ABC, final("a", "b", "c", "x")],
        [*ABC, tried("x", 40), final("a", "b", "c", "x")],
    ),
    Case(
        "a record whose producer was told that it failed",
        Kind.PHANTOM,
        "its producer was told that it is not written",
        [*ABC, tried("x", 40, FAIL), final("a", "b", "c", "x")],
        [*ABC, tried("x", 40, FAIL), WHOLE],
    ),
    Case(
        "a record of another partition",
        Kind.PHANTOM,
        "it was written to partition 1",
        [*ABC, tried("x", 40, partition=1), final("a", "b", "c", "x")],
        [*ABC, tried("x", 40, partition=-1), final("a", "b", "c", "x")],
    ),
    Case(
        "two replicas differ",
        Kind.DIVERGED,
        "at offset 2 replica 1 has 'c', replica 2 'x'",
        [*ABC, tried("x", 29), final("a", "b", "c", replica=1), final("a", "b", "x", replica=2)],
        [*ABC, tried("x", 29), final("a", "b", "c", replica=1), final("a", "b", "c", replica=2)],
    ),
    Case(
        "a replica in sync lacks the end",
        Kind.DIVERGED,
        "replica 1 has a record at offset 2, replica 2 has none",
        [*ABC, final("a", "b", "c", replica=1), final("a", "b", replica=2)],
        [*ABC, final("a", "b", "c", replica=1), final("a", "b", replica=2, lagging=True)],
    ),
    Case(
        "a replica has more than the leader",
        Kind.DIVERGED,
        "replica 2 has a record at offset 3, the leader has none",
        [*ABC, tried("x", 40), WHOLE, final("a", "b", "c", "x", replica=2)],
        [*ABC, tried("x", 40), final("a", "b", "c", "x"), final("a", "b", "c", "x", replica=2)],
    ),
    Case(
        "a replica has a hole",
        Kind.DIVERGED,
        "the leader has a record at offset 1, replica 2 has none",
        [*ABC, WHOLE, final("a", None, "c", replica=2)],
        [*ABC, WHOLE, final("b", "c", start=1, replica=2)],
    ),
    Case(
        "an acknowledged record moved",
        Kind.OFFSET_CHANGED,
        "'c' was acknowledged at offset 2 and stands at 3",
        [*ABC, tried("x", 29), final("a", "b", "x", "c")],
        [*ABC, tried("x", 29), final("a", "b", "c", "x")],
    ),
    Case(
        "two readers saw different records",
        Kind.OFFSET_CHANGED,
        "offset 1 was 'b' and 'x'",
        [tried("b", 9), tried("x", 9), delivered((1, "b"), begin=20), delivered((1, "x"), begin=30)],
        [tried("b", 9), tried("x", 9), delivered((1, "b"), begin=20), delivered((2, "x"), begin=30)],
    ),
    Case(
        "what a reader saw is another record in the end",
        Kind.OFFSET_CHANGED,
        "offset 1 was 'x' and 'b'",
        [*ABC, tried("x", 15), delivered((1, "x"), begin=20), WHOLE],
        [*ABC, tried("x", 15), delivered((1, "b"), begin=20), WHOLE],
    ),
    Case(
        "what a reader saw is gone",
        Kind.OFFSET_CHANGED,
        "r read 'x' at offset 3: nothing is there",
        [*ABC, tried("x", 40), delivered((3, "x"), begin=50), WHOLE],
        [*ABC, tried("x", 40), delivered((3, "x"), begin=50), final("a", "b", "c", "x")],
    ),
    Case(
        "two records were acknowledged at one offset",
        Kind.OFFSET_CHANGED,
        "offset 1 was 'a' and 'b'",
        [wrote("a", 1, 10, end=30), wrote("b", 1, 20)],
        [wrote("a", 1, 10, end=30), wrote("b", 2, 20)],
    ),
]

TIMED: list[AnyOperation] = [
    wrote("a", 0, 10, timestamp=400),
    wrote("b", 1, 20, timestamp=700),
    wrote("c", 2, 30, timestamp=600),
]
LISTS = [
    Case(
        "the end goes back",
        Kind.OFFSET_CHANGED,
        "the latest is 3, and later 2",
        [asked("latest", 3, 40), asked("latest", 2, 50)],
        [asked("latest", 3, 40), asked("latest", 2, 50, process="another")],
    ),
    Case(
        "the beginning goes back",
        Kind.OFFSET_CHANGED,
        "the earliest is 2, and later 1",
        [asked("earliest", 2, 40), asked("earliest", 1, 50)],
        [asked("earliest", 2, 40, end=60), asked("earliest", 1, 50)],
    ),
    Case(
        "the first record of a time is another one later",
        Kind.OFFSET_CHANGED,
        "the first record since 500 was at 2, and later at 1",
        [asked(500, 2, 40), asked(500, 1, 50)],
        [asked(500, -1, 40), asked(500, 1, 50)],
    ),
    Case(
        "the first record of a time is none later",
        Kind.OFFSET_CHANGED,
        "was at 2, and later at none",
        [asked(500, 2, 40), asked(500, -1, 50)],
        [asked(500, 2, 40), asked(600, -1, 50)],
    ),
    Case(
        "the first record of a time is another one by their times",
        Kind.OFFSET_CHANGED,
        "the first record since 500 is at 2: it is at 1",
        [*TIMED, asked(500, 2, 40), WHOLE],
        [*TIMED, asked(500, 1, 40), WHOLE],
    ),
    Case(
        "a record is told that is too early for the time",
        Kind.OFFSET_CHANGED,
        "the first record since 701 is at 2: none is so late",
        [*TIMED, asked(701, 2, 40), WHOLE],
        [*TIMED, asked(700, 1, 40), WHOLE],
    ),
    Case(
        "a later time comes first",
        Kind.OFFSET_CHANGED,
        "the first record since 500 is at 3, since 600 at 2",
        [asked(600, 2, 40), asked(500, 3, 50)],
        [asked(600, 3, 40), asked(500, 3, 50)],
    ),
]

IN_A: dict[str, Any] = {"transaction": "A"}
TRANSACTIONS = [
    Case(
        "a reader is given what was aborted",
        Kind.ABORTED_READ,
        "r was given 'a' at offset 0, of the aborted transaction A",
        [wrote("a", 0, 10, **IN_A), ended("A", "abort", 20), read("a", begin=30, isolation=COMMITTED), final("a")],
        [wrote("a", 0, 10, **IN_A), ended("A", "abort", 20), read("a", begin=30), final("a")],
    ),
    Case(
        "what was never ended is given at the end",
        Kind.ABORTED_READ,
        "the leader at read_committed was given 'a' at offset 0",
        [wrote("a", 0, 10, **IN_A), final("a"), final("a", isolation=COMMITTED)],
        [wrote("a", 0, 10, **IN_A), final("a"), final(None, isolation=COMMITTED)],
    ),
    Case(
        "a commit was refused and is seen",
        Kind.ABORTED_READ,
        "aborted transaction A",
        [
            wrote("a", 0, 10, **IN_A),
            ended("A", "commit", 20, FAIL),
            read("a", begin=30, isolation=COMMITTED),
            final("a"),
        ],
        [
            wrote("a", 0, 10, **IN_A),
            ended("A", "commit", 20, UNKNOWN),
            read("a", begin=30, isolation=COMMITTED),
            final("a"),
        ],
    ),
    Case(
        "a committed transaction is lost",
        Kind.LOST,
        "'a' was acknowledged at offset 0",
        [wrote("a", 0, 10, **IN_A), ended("A", "commit", 20), final(None, isolation=COMMITTED)],
        [wrote("a", 0, 10, **IN_A), ended("A", "commit", 20, UNKNOWN), final(None, isolation=COMMITTED)],
    ),
    Case(
        "half a transaction is there",
        Kind.HALF_TRANSACTION,
        "'a' of t-0 is there, 'b' of t-0 is not",
        [
            wrote("a", 0, 10, **IN_A),
            wrote("b", 1, 11, **IN_A),
            ended("A", "commit", 20, UNKNOWN),
            final("a", "b"),
            final("a", None, isolation=COMMITTED),
        ],
        [
            wrote("a", 0, 10, **IN_A),
            wrote("b", 1, 11, **IN_A),
            ended("A", "commit", 20, UNKNOWN),
            final("a", "b"),
            final(None, None, isolation=COMMITTED),
        ],
    ),
    Case(
        "half a transaction is there, wherever that is",
        Kind.HALF_TRANSACTION,
        "'a' of t-0 is there, 'b' of t-0 is not",
        [
            wrote("a", -1, 10, **IN_A),
            wrote("b", -1, 11, **IN_A),
            ended("A", "commit", 20, UNKNOWN),
            final("a", None, isolation=COMMITTED),
        ],
        [
            wrote("a", -1, 10, **IN_A),
            wrote("b", -1, 11, **IN_A),
            ended("A", "commit", 20, UNKNOWN),
            final("a", "b", isolation=COMMITTED),
        ],
    ),
    Case(
        "a reader passes over what was committed",
        Kind.SKIPPED,
        "not given 1",
        [
            wrote("a", 0, 10),
            wrote("b", 1, 11, **IN_A),
            ended("A", "commit", 20),
            read("a", None, begin=30, isolation=COMMITTED),
            final("a", "b"),
        ],
        [
            wrote("a", 0, 10),
            wrote("b", 1, 11, **IN_A),
            ended("A", "abort", 20),
            read("a", None, begin=30, isolation=COMMITTED),
            final("a", "b"),
        ],
    ),
    Case(
        "a reader of what is committed is late",
        Kind.STALE,
        "offset 0 was acknowledged before it asked",
        [
            wrote("a", 0, 10, **IN_A),
            ended("A", "commit", 20),
            read(begin=30, isolation=COMMITTED, fresh=True),
            final("a"),
        ],
        [
            wrote("a", 0, 10, **IN_A),
            ended("A", "commit", 30),
            read(begin=30, isolation=COMMITTED, fresh=True),
            final("a"),
        ],
    ),
    Case(
        "a source was taken twice",
        Kind.DUPLICATED,
        "s-0@0 was taken twice: 'a' and 'b' are committed",
        [
            wrote("a", 0, 10, source="s-0@0", **IN_A),
            wrote("b", 1, 11, source="s-0@0", transaction="B"),
            ended("A", "commit", 20),
            ended("B", "commit", 20),
            final("a", "b", isolation=COMMITTED),
        ],
        [
            wrote("a", 0, 10, source="s-0@0", **IN_A),
            wrote("b", 1, 11, source="s-0@0", transaction="B"),
            ended("A", "abort", 20),
            ended("B", "commit", 20),
            final(None, "b", isolation=COMMITTED),
        ],
    ),
    Case(
        "a source was committed and nothing was made of it",
        Kind.LOST,
        "nothing was made of offset 1",
        [
            wrote("a", 0, 10, source="s-0@0"),
            final("a", isolation=COMMITTED),
            final("x", "y", topic="s"),
            committed(2, 900, topic="s", final=True),
        ],
        [
            wrote("a", 0, 10, source="s-0@0"),
            final("a", isolation=COMMITTED),
            final("x", "y", topic="s"),
            committed(1, 900, topic="s", final=True),
        ],
    ),
]

IN_GROUP: dict[str, Any] = {"group": "g", "start": -1}
GROUPS = [
    Case(
        "a member begins behind what nobody read",
        Kind.SKIPPED,
        "two of g read on from 2; nobody had read offset 1",
        [
            *ABC,
            delivered((0, "a"), begin=40, next=1, process="one", **IN_GROUP),
            delivered((2, "c"), begin=50, next=3, process="two", **IN_GROUP),
            WHOLE,
        ],
        [
            *ABC,
            delivered((0, "a"), (1, "b"), begin=40, next=2, process="one", **IN_GROUP),
            delivered((1, "b"), (2, "c"), begin=50, next=3, process="two", **IN_GROUP),
            WHOLE,
        ],
    ),
    Case(
        "a member begins before what was committed",
        Kind.REWOUND,
        "two of g began at 0; 1 was committed before",
        [*ABC, committed(1, 40), given("two", 50), delivered((0, "a"), begin=60, process="two", **IN_GROUP), WHOLE],
        [*ABC, committed(1, 50), given("two", 50), delivered((0, "a"), begin=60, process="two", **IN_GROUP), WHOLE],
    ),
    Case(
        "a committed offset is gone in the end",
        Kind.REWOUND,
        "g had committed 2, and 1 is left",
        [committed(2, 40), committed(1, 900, final=True)],
        [committed(2, 40, outcome=UNKNOWN), committed(1, 900, final=True)],
    ),
]

KEY: dict[str, Any] = {"key": "k"}
REGISTERS = [
    Case(
        "an older value is read",
        Kind.NOT_LINEARIZABLE,
        "'a' and 'b' were both current",
        [wrote("a", 0, 10, **KEY), wrote("b", 1, 20, **KEY), got("b", 30, 31), got("a", 40, 41), final("a", "b")],
        [wrote("a", 0, 10, **KEY), wrote("b", 1, 20, **KEY), got("a", 20, 41), got("b", 30, 31), final("a", "b")],
    ),
    Case(
        "a write is not seen",
        Kind.NOT_LINEARIZABLE,
        "'a' was current before 'b' was written, and was read after that was acknowledged",
        [wrote("a", 0, 10, **KEY), got("a", 13, 14), wrote("b", 1, 20, **KEY), got("a", 30, 31), final("a", "b")],
        [wrote("a", 0, 10, **KEY), got("a", 13, 14), tried("b", 20, **KEY), got("a", 30, 31), final("a")],
    ),
    Case(
        "nothing is read after a write",
        Kind.NOT_LINEARIZABLE,
        "None was current before 'a' was written",
        [wrote("a", 0, 10, **KEY), got(None, 30, 31), final("a")],
        [wrote("a", 0, 10, end=30, **KEY), got(None, 30, 31), final("a")],
    ),
    Case(
        "a value is read that nobody wrote",
        Kind.NOT_LINEARIZABLE,
        "'x' was read, and nobody wrote it",
        [wrote("a", 0, 10, **KEY), tried("x", 20, FAIL, **KEY), got("x", 30, 31), final("a")],
        [wrote("a", 0, 10, **KEY), tried("x", 20, UNKNOWN, **KEY), got("x", 30, 31), final("a", "x")],
    ),
    Case(
        "a value is read before it was written",
        Kind.NOT_LINEARIZABLE,
        "'a' was read before it was written",
        [got("a", 5, 6), wrote("a", 0, 10, **KEY), final("a")],
        [got("a", 5, 10), wrote("a", 0, 10, **KEY), final("a")],
    ),
]

ADMIN = [
    Case(
        "a topic that was made is not there",
        Kind.METADATA_NOT_LINEARIZABLE,
        "that it was not there",
        [admin("create", "1", 10, 11), admin("describe", None, 20, 21)],
        [admin("create", "1", 10, 21), admin("describe", None, 20, 21)],
    ),
    Case(
        "a topic is made twice",
        Kind.METADATA_NOT_LINEARIZABLE,
        "create of '2' was answered 'ok'",
        [admin("create", "1", 10, 11), admin("create", "2", 20, 21)],
        [admin("create", "1", 10, 11), admin("create", "2", 20, 21, result="exists")],
    ),
    Case(
        "a topic that was deleted is there again",
        Kind.METADATA_NOT_LINEARIZABLE,
        "it was seen as '1'",
        [admin("create", "1", 10, 11), admin("delete", None, 20, 21), admin("describe", "1", 30, 31)],
        [admin("create", "1", 10, 11), admin("delete", None, 20, 21, UNKNOWN), admin("describe", "1", 30, 31)],
    ),
    Case(
        "a setting goes back",
        Kind.METADATA_NOT_LINEARIZABLE,
        "it was seen as '1'",
        [admin("create", "1", 10, 11), admin("alter", "2", 20, 21), admin("describe", "1", 30, 31)],
        [admin("create", "1", 10, 11), admin("alter", "2", 20, 21), admin("describe", "1", 30, 31, local=True)],
    ),
    Case(
        "a topic that is not there is altered",
        Kind.METADATA_NOT_LINEARIZABLE,
        "alter of '2' was answered 'ok'",
        [admin("alter", "2", 20, 21)],
        [admin("alter", "2", 20, 21, result="absent")],
    ),
    Case(
        "a topic that was made is absent",
        Kind.METADATA_NOT_LINEARIZABLE,
        "alter of '2' was answered 'absent'",
        [admin("create", "1", 10, 11), admin("alter", "2", 20, 21, result="absent")],
        [admin("create", "1", 10, 11, FAIL), admin("alter", "2", 20, 21, result="absent")],
    ),
    Case(
        "a broker shows what nobody asked for",
        Kind.METADATA_NOT_LINEARIZABLE,
        "nobody had asked for that",
        [admin("create", "1", 10, 11), admin("describe", "x", 20, 21, local=True)],
        [admin("create", "1", 10, 11), admin("describe", "1", 20, 21, local=True)],
    ),
    Case(
        "a broker shows what comes later",
        Kind.METADATA_NOT_LINEARIZABLE,
        "that was asked for later",
        [admin("describe", "1", 5, 6, local=True), admin("create", "1", 10, 11)],
        [admin("describe", "1", 5, 10, local=True), admin("create", "1", 10, 11)],
    ),
]

CASES = RECORDS + LISTS + TRANSACTIONS + GROUPS + REGISTERS + ADMIN


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_anomaly_is_found(case: Case) -> None:
    report = judged(*case.wrong)
    told = [each.sentence for each in report.anomalies if each.kind is case.kind]
    assert any(case.words in each for each in told), str(report)
    assert report.exit_code == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_nearly_an_anomaly_is_none(case: Case) -> None:
    report = judged(*case.fine)
    assert report.anomalies == [], str(report)


def test_every_kind_of_anomaly_has_a_test() -> None:
    assert {each.kind for each in CASES} == set(Kind)


# --- unclean elections ---------------------------------------------------------------------------------------------------


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


# --- what cannot be judged -----------------------------------------------------------------------------------------------


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
