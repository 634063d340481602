"""What is found in a history, as data."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

EXAMPLES_MAX = 10
"""Findings of one kind at one place that are told one by one; of the others there is a number."""


class Kind(StrEnum):
    """docs/checker.md says of each what a user loses by it."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    STALE = "stale"
    SKIPPED = "skipped"
    PHANTOM = "phantom"
    DIVERGED = "diverged"
    OFFSET_CHANGED = "offset-changed"
    REWOUND = "rewound"
    ABORTED_READ = "aborted-read"
    HALF_TRANSACTION = "half-transaction"
    METADATA_NOT_LINEARIZABLE = "metadata-not-linearizable"
    NOT_LINEARIZABLE = "not-linearizable"


class Finding(NamedTuple):
    """``lines``: of the operations in the history. ``sentence`` says what it means."""

    kind: Kind
    where: str
    lines: Sequence[int]
    sentence: str

    def __str__(self) -> str:
        lines = f" (lines {', '.join(map(str, self.lines))})" if self.lines else ""
        return f"{self.kind} {self.where}: {self.sentence}{lines}"


class Findings:
    """Few are kept of each kind and place, all are counted."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[Kind, str]] = Counter()

    def add(self, kind: Kind, where: str, lines: Sequence[int], sentence: str) -> None:
        self.counts[kind, where] += 1
        if self.counts[kind, where] <= EXAMPLES_MAX:
            self.kept.append(Finding(kind, where, [each for each in lines if each > 0], sentence))

    def by_kind(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (kind, _), count in self.counts.items():
            found[kind] += count
        return dict(found)


class Judgement:
    """Where judges put what they find."""

    def __init__(self) -> None:
        self.anomalies = Findings()
        self.permitted = Findings()
        self.unknown = Findings()

    def add(self, kind: Kind, where: str, lines: Sequence[int], sentence: str, *, permitted: bool = False) -> None:
        (self.permitted if permitted else self.anomalies).add(kind, where, lines, sentence)
