"""How a replay goes: which rows in which chunk. Pure; written down once, so that a replay that is started again sends the same chunks."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

SECONDS_A_CHUNK = 2.0
"""With a rate: rows leave in bursts of that length."""


class PlanError(Exception):
    """A plan that was written down and is of another replay; the message says what differs."""


class Extent(NamedTuple):
    """What there is to send of one partition of one topic."""

    topic: str
    partition: int
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class Plan:
    """``chunks`` are conditions in SQL, one for each chunk, that share the rows out; ``rows`` are how many there are of all."""

    name: str
    words: Mapping[str, Any]
    files: tuple[str, ...]
    rows: int
    tasks: int
    chunks: tuple[str, ...]

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1)


def plan_of(text: str, words: Mapping[str, Any]) -> Plan:
    """Raises PlanError for one that was made for other words."""
    try:
        told = json.loads(text)
        plan = Plan(**(told | {"files": tuple(told["files"]), "chunks": tuple(told["chunks"])}))
    except (ValueError, TypeError, KeyError) as error:
        raise PlanError(f"its plan cannot be read: {error}") from None
    differing = sorted(name for name in {*plan.words, *words} if plan.words.get(name) != words.get(name))
    if differing:
        told_words = "; ".join(f"{name} was {plan.words.get(name)}, and is {words.get(name)}" for name in differing)
        raise PlanError(f"it is of another replay: {told_words}")
    return plan


def rows_a_chunk(chunk: int, rate: float | None) -> int:
    return chunk if rate is None else max(1, min(chunk, round(rate * SECONDS_A_CHUNK)))


def chunks_by_offset(extents: Sequence[Extent], chunk: int) -> list[str]:
    """All partitions go on together: each chunk has the same share of each partition's offsets."""
    count = max(1, -(-sum(each.rows for each in extents) // chunk))
    chunks = []
    for number in range(count):
        parts = []
        for each in extents:
            width = each.last + 1 - each.first
            low, high = (each.first + width * place // count for place in (number, number + 1))
            if low < high:
                where = f"`topic` = {quoted(each.topic)} AND " if each.topic else ""
                parts.append(f"({where}`partition` = {each.partition} AND `offset` >= {low} AND `offset` < {high})")
        if parts:
            chunks.append(" OR ".join(parts))
    return chunks


def chunks_by_column(expression: str, borders: Iterable[str]) -> list[str]:
    """``expression`` and the ascending ``borders`` are of SQL; what is equal stays together."""
    marks = list(dict.fromkeys(borders))
    between = [f"{expression} >= {low} AND {expression} < {high}" for low, high in pairwise(marks)]
    return [f"{expression} < {marks[0]}", *between, f"{expression} >= {marks[-1]}"] if marks else ["true"]


def quoted(text: str) -> str:
    """As a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class Progress:
    """Which chunks are sent: counted beside the plan, behind the chunk's commit. One that is sent twice is skipped by the sink."""

    def __init__(self, text: str | None) -> None:
        self.done = int(text) if text and text.strip().isdecimal() else 0

    def text(self) -> str:
        return f"{self.done}\n"
