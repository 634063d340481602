"""What ListOffsets tells."""

from ottla.testing.checker import Kind
from ottla.testing.checker.operations import AnyOperation
from tests.unit.testing.checker.anomalies.case import WHOLE, Case
from tests.unit.testing.checker.story import (
    asked,
    wrote,
)

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
