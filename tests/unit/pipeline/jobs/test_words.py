"""What people write becomes the options of Spark's Kafka connector; what is off is said before anything is loaded."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ottla.pipeline.jobs.places import Place, place_of
from ottla.pipeline.jobs.registry import JOBS
from ottla.pipeline.jobs.words import (
    InputWords,
    SessionWords,
    StreamWords,
    input_words,
    interval_ms,
    session_words,
    stream_words,
)

FLIGHTS = InputWords("a:9092", ("flights",))


@click.command()
@input_words
@stream_words
@session_words
@click.option("--table")
def job(**words: object) -> None:
    click.echo(repr(words))


def told(*words: str) -> str:
    """What the job was given, or what is wrong with the words."""
    return CliRunner().invoke(job, words).output


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Place(word="earliest")),
        ("LATEST", Place(word="latest")),
        ('{"flights": {"0": 5, "1": "latest", "2": -2}}', Place(offsets={"flights": {"0": 5, "1": -1, "2": -2}})),
        ("2026-11-21T20:15", Place(time_ms=1_795_292_100_000)),
        ("2026-11-21T21:15:00.500+01:00", Place(time_ms=1_795_292_100_500)),
    ],
)
def test_a_place_is_a_word_offsets_or_a_time(text: str, place: Place) -> None:
    assert place_of(text, "--from") == place


@pytest.mark.parametrize(
    "text",
    ["yesterday", "", '{"flights": 5}', '{"flights": {"0": true}}', '{"f": {"0": -3}}', '{"f": {"0": "-3"}}', "{"],
)
def test_any_other_place_is_refused_with_what_may_stand_there(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"--from .*: write "):
        place_of(text, "--from")


# --- options of the source --------------------------------------------------------------------------------------------


def test_a_job_begins_with_the_first_record_and_a_stream_has_no_end() -> None:
    options = {"kafka.bootstrap.servers": "a:9092", "subscribe": "flights", "startingOffsets": "earliest"}
    assert FLIGHTS.read_options(streaming=True) == options
    assert FLIGHTS.read_options(streaming=False) == options | {"endingOffsets": "latest"}


def test_a_time_behind_a_partitions_last_record_stands_for_its_end() -> None:
    words = InputWords("a:9092", pattern="fl.*", start=Place(time_ms=5), until=Place(time_ms=9))
    assert words.read_options(streaming=True) == {
        "kafka.bootstrap.servers": "a:9092",
        "subscribePattern": "fl.*",
        "startingTimestamp": "5",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "9",
    }


def test_an_option_that_is_named_stands_above_ours() -> None:
    words = InputWords("a:9092", assign={"b": (1, 0)}, options={"startingOffsets": "latest", "minPartitions": "4"})
    assert words.read_options(streaming=True) == {
        "kafka.bootstrap.servers": "a:9092",
        "assign": '{"b": [1, 0]}',
        "startingOffsets": "latest",
        "minPartitions": "4",
    }


def test_a_label_is_fit_for_names_of_queries_and_groups() -> None:
    assert FLIGHTS.topic_label == "flights"
    assert InputWords("a", ("b", "a")).topic_label == "b-a"
    assert InputWords("a", pattern="fleet_.*(V|alerts)").topic_label == "fleet_.-V-alerts"


# --- how a stream goes on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("available-now", None),
        ("availableNow", None),
        ("10 seconds", 10_000),
        ("1 second", 1000),
        ("500ms", 500),
        ("1.5s", 1500),
        ("2 minutes", 120_000),
        ("1h", 3_600_000),
        ("0 seconds", 0),
    ],
)
def test_a_trigger_is_now_or_every_so_often(text: str, milliseconds: int | None) -> None:
    assert interval_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "often", "10", "10 parsecs", "-1 s"])
def test_any_other_trigger_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="write available-now, or an interval"):
        interval_ms(text)


def test_offsets_are_committed_for_a_group_of_the_querys_name() -> None:
    assert StreamWords().group_of("ingest-flights") == "ottla-ingest-flights"
    assert StreamWords(group="mine").group_of("ingest-flights") == "mine"
    assert StreamWords(group="none").group_of("ingest-flights") is None


def test_limits_are_options_of_the_source_where_they_were_written() -> None:
    assert StreamWords().limit_options() == {}
    assert StreamWords(offsets_max=5, bytes_max=9).limit_options() == {
        "maxOffsetsPerTrigger": "5",
        "maxBytesPerTrigger": "9",
    }


# --- the command line -------------------------------------------------------------------------------------------------


def test_a_job_is_given_one_value_by_each_group_of_words() -> None:
    written = told(
        "-b", "h", "--topics", "a, b", "--trigger", "5s", "--conf", "spark.x=y=z", "-o", "json", "--table", "/t"
    )
    values = {
        "input": InputWords("h:9092", ("a", "b")),
        "stream": StreamWords(interval_ms=5000),
        "session": SessionWords(confs={"spark.x": "y=z"}, output="json"),
    }
    assert all(f"{name!r}: {value!r}" in written for name, value in values.items())
    assert "'table': '/t'" in written


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "write one of --topics, --pattern, --assign"),
        (["--topics", "a", "--pattern", "b"], "write one of --topics, --pattern, --assign"),
        (["--pattern", "("], "is no regular expression"),
        (["--assign", "{}"], "--assign '{}': write {\"flights\":[0,2]}"),
        (["--topics", "a", "--option", "x"], "--option x: write NAME=VALUE"),
        (["--topics", "a", "--conf", "=x"], "--conf =x: write NAME=VALUE"),
        (["--topics", "a", "--name", "a b"], "--name 'a b': letters"),
        (["--topics", "a", "-b", "h:x"], "'h:x' is not host:port"),
    ],
)
def test_words_that_are_off_are_said(words: list[str], problem: str) -> None:
    assert problem in told(*words)


# --- loading ----------------------------------------------------------------------------------------------------------

LOADED = """
import importlib, importlib.util, sys
for module in sys.argv[1:]:
    if importlib.util.find_spec(module): importlib.import_module(module)
print(*sys.modules, sep="\\n")
"""
HEAVY = ("pyspark", "pyarrow", "numpy", "deltalake", "msgspec", "rich", "asyncio", "json.tool", "ottla.broker")


def test_the_words_of_all_jobs_load_no_library_but_clicks() -> None:
    command = [sys.executable, "-c", LOADED, *(module for module, _, _ in JOBS.values())]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert "ottla.pipeline.jobs.package" in loaded
    assert not set(loaded) & set(HEAVY)
