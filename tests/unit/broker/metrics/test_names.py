"""The names: people build alerts on them, so they change only where somebody means it."""

import re
from pathlib import Path

import pytest

from ottla.broker.metrics.node import AREAS
from ottla.runtime.metrics import Kind, Metric

GOLDEN = Path(__file__).with_name("names.txt")
DECLARED = [metric for area in AREAS for metric in area.metrics]


def described(metric: Metric[object]) -> str:
    labels = "{" + ",".join(metric.labels) + "}" if metric.labels else ""
    return f"{metric.kind} {metric.name}{labels}"


def test_names_kinds_and_labels_are_as_they_were() -> None:
    """If that was meant: python -m tests.unit.broker.metrics.test_names"""
    assert [described(metric) for metric in DECLARED] == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_no_name_stands_twice() -> None:
    names = [metric.name for metric in DECLARED]
    assert len(dict.fromkeys(names)) == len(names)


@pytest.mark.parametrize("metric", DECLARED, ids=lambda metric: metric.name)
def test_a_declaration_is_one_that_prometheus_takes(metric: Metric[object]) -> None:
    assert re.fullmatch(r"(kafka|ottla)_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help.endswith((".", "?"))
    assert all(re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", label) for label in metric.labels)


if __name__ == "__main__":
    GOLDEN.write_text("".join(described(metric) + "\n" for metric in DECLARED), encoding="utf-8")
