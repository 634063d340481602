"""What is measured, and in which windows, as people write it."""

import click
import pytest

from ottla.pipeline.jobs.aggregate import options_of, span
from ottla.pipeline.jobs.measures import Measure, measure_of
from ottla.pipeline.jobs.values import ValueWords, value_of
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords


@pytest.mark.parametrize(
    ("text", "sql", "name"),
    [
        ("carrier", "carrier", "carrier"),
        ("avg(dep_delay) AS delay", "avg(dep_delay)", "delay"),
        ("count(*)", "count(*)", "count"),
        ("hour(time)", "hour(time)", "hour_time"),
        ("p95(delay)", "percentile_approx(delay, 0.95, 1000)", "p95_delay"),
        ("p99.9(abs(delay)) as worst", "percentile_approx(abs(delay), 0.999, 1000)", "worst"),
        ("p95(a) - p5(b) as w", "percentile_approx(a, 0.95, 1000) - percentile_approx(b, 0.05, 1000)", "w"),
        ("cast(x as int) as y", "cast(x as int)", "y"),
    ],
)
def test_a_measure_is_sql_with_a_name(text: str, sql: str, name: str) -> None:
    assert measure_of(text, "--measure") == Measure(sql, name)


@pytest.mark.parametrize("text", ["", "*", "p95(delay"])
def test_a_measure_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--measure"):
        measure_of(text, "--measure")


def test_a_span_is_a_time_that_passes() -> None:
    assert span("10 minutes", "--window") == "600000 milliseconds"
    for text in ("0 seconds", "available-now", "long"):
        with pytest.raises(click.UsageError, match=r"--window .*: write a span"):
            span(text, "--window")


def words(**more: object) -> dict[str, object]:
    return {
        "input": InputWords("b:1", ("t",)),
        "stream": StreamWords(),
        "session": SessionWords(),
        "value": ValueWords(),
        "window": "1 minute",
        "slide": None,
        "watermark": "1 minute",
        "keys": ("carrier",),
        "measures": (),
        "table": "/lake/t",
        "to_topic": None,
    } | more


def test_without_a_measure_records_are_counted_and_the_checkpoint_is_beside_the_table() -> None:
    options = options_of(words())
    assert options.measures == (Measure("count(*)", "count"),)
    assert options.checkpoint == "/lake/t.checkpoint"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"to_topic": "x"}, "write one of --table, --to-topic"),
        ({"table": None}, "write one of --table, --to-topic"),
        ({"table": None, "to_topic": "x"}, "--to-topic wants a --checkpoint"),
        ({"keys": ("count",)}, "columns of one name"),
        ({"keys": ("a as window_end",)}, "columns of one name"),
    ],
)
def test_words_that_cannot_go_together_are_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        options_of(words(**more))


# --- values -----------------------------------------------------------------------------------------------------------

NOTHING = {"value_format": None, "value_schema": None, "schema_file": None, "value_message": None, "value_prefix": ""}


def test_a_value_without_a_format_is_bytes() -> None:
    assert value_of(NOTHING).options() == {}


def test_a_format_wants_its_schema() -> None:
    with pytest.raises(click.UsageError, match="--value-format json wants its schema"):
        value_of(NOTHING | {"value_format": "json"})
    with pytest.raises(click.UsageError, match="name one"):
        value_of(NOTHING | {"value_schema": "a int"})
    told = value_of(NOTHING | {"value_format": "json", "value_schema": " a int "}).options()
    assert told == {"value.format": "json", "value.schema": "a int"}
