"""What is counted and grouped by: Spark's SQL, `p95(x)` besides, and a name for each."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import click

ACCURACY = 1000
"""Of percentiles: one in a thousand, and 20 KB of state a group at most."""
_AS = re.compile(r"(?P<sql>.+?)\s+as\s+(?P<name>\w+)\s*", re.IGNORECASE | re.DOTALL)
_PERCENTILE = re.compile(r"\bp(?P<percent>\d{1,2}(?:\.\d+)?)\s*\(", re.IGNORECASE)
_UNFIT = re.compile(r"\W+")


class Measure(NamedTuple):
    """A column of the result."""

    sql: str
    name: str


def measure_of(text: str, option: str) -> Measure:
    """Raises UsageError."""
    found = _AS.fullmatch(text.strip())
    sql = found["sql"] if found else text.strip()
    name = found["name"] if found else _UNFIT.sub("_", sql.replace("*", "")).strip("_")
    if not sql or not name:
        raise click.UsageError(f'{option} {text!r}: write an expression of SQL, "max(delay) as worst"')
    return Measure(_with_percentiles(sql, option), name)


def named(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    return tuple(measures)


def _with_percentiles(sql: str, option: str) -> str:
    """`p95(x)` as Spark says it."""
    found = _PERCENTILE.search(sql)
    if found is None:
        return sql
    end = _closing(sql, found.end())
    if end is None:
        raise click.UsageError(f"{option} {sql!r}: a ')' is missing")
    inner, fraction = sql[found.end() : end], float(found["percent"]) / 100
    rest = _with_percentiles(sql[end + 1 :], option)
    return f"{sql[: found.start()]}percentile_approx({inner}, {fraction:g}, {ACCURACY}){rest}"


def _closing(sql: str, at: int) -> int | None:
    depth = 1
    for position in range(at, len(sql)):
        depth += (sql[position] == "(") - (sql[position] == ")")
        if depth == 0:
            return position
    return None
