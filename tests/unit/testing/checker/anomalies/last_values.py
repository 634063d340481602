"""The last value of a key, and the topics that there are: one after another, or not."""

from typing import Any

from ottla.testing.checker import Kind
from tests.unit.testing.checker.anomalies.case import Case
from tests.unit.testing.checker.story import (
    FAIL,
    UNKNOWN,
    admin,
    final,
    got,
    tried,
    wrote,
)

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
