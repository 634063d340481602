"""What a case is: a history with an anomaly, and one beside it that is fine."""

from typing import NamedTuple

from ottla.testing.checker import Kind, Topic
from ottla.testing.checker.operations import AnyOperation
from tests.unit.testing.checker.story import (
    final,
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
