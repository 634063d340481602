"""What becomes of transactions, and of what groups commit."""

from typing import Any

from ottla.testing.checker import Kind
from tests.unit.testing.checker.anomalies.case import ABC, WHOLE, Case
from tests.unit.testing.checker.story import (
    COMMITTED,
    FAIL,
    UNKNOWN,
    committed,
    delivered,
    ended,
    final,
    given,
    read,
    wrote,
)

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
