"""Jobs on a real cluster and a real Spark: what they land, what they tell, and that they go on where they were."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs import aggregate_run, ingest_run, streaming, tables
from ottla.pipeline.jobs.aggregate import AggregateOptions, options_of
from ottla.pipeline.jobs.checkpoint import Checkpoint
from ottla.pipeline.jobs.ingest import IngestOptions
from ottla.pipeline.jobs.lag_rows import standing
from ottla.pipeline.jobs.places import Place as PlaceWord
from ottla.pipeline.jobs.values import ValueWords
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords
from tests.spark.records import create

BEGAN_MS = 1_767_225_600_000
"""2026-01-01, midnight."""
JSON = ValueWords("json", "number int, kind string")


def send(bootstrap: str, topic: str, records: Iterable[tuple[int, str]]) -> int:
    """Values with the seconds since the beginning, on partition 0 and 1 in turn."""
    producer, count = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5}), 0
    for count, (second, value) in enumerate(records, 1):
        at_ms = BEGAN_MS + 1000 * second
        producer.produce(topic, value, str(second), partition=count % 2, timestamp=at_ms)
    assert producer.flush(30) == 0
    return count


def numbers(first: int, count: int) -> list[tuple[int, str]]:
    """Every tenth does not parse."""
    return [
        (
            each,
            json.dumps({"number": each, "kind": "even" if each % 2 == 0 else "odd"})
            if each % 10
            else f"no JSON {each}",
        )
        for each in range(first, first + count)
    ]


@dataclass(frozen=True)
class Place:
    """Where one test's job reads and writes."""

    bootstrap: str
    topic: str
    directory: Path

    @property
    def table(self) -> str:
        return str(self.directory / "table")

    @property
    def progress(self) -> list[dict[str, Any]]:
        path = self.directory / "progress.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def ingest(self, **stream: Any) -> IngestOptions:
        return IngestOptions(
            InputWords(self.bootstrap, (self.topic,)),
            StreamWords(**{"offsets_max": 100, **stream}),
            SessionWords(progress=str(self.directory / "progress.jsonl")),
            JSON,
            self.table,
            partition_by=("topic",),
            compact_every=0,
        )


@pytest.fixture
def place(bootstrap: str, topic: str, tmp_path: Path) -> Place:
    create(bootstrap, topic, 2)
    return Place(bootstrap, topic, tmp_path)


def landed(spark: SparkSession, table: str, column: str = "number") -> list[Any]:
    """In order, each as often as it is there."""
    return sorted(row[0] for row in tables.functions("delta").read(spark, table).select(column).collect())


# --- ingest -----------------------------------------------------------------------------------------------------------


def test_rows_that_do_not_parse_are_in_a_table_of_their_own(spark: SparkSession, place: Place) -> None:
    send(place.bootstrap, place.topic, numbers(1, 50))
    assert ingest_run.run(spark, place.ingest()) == 0
    assert landed(spark, place.table) == [each for each in range(1, 51) if each % 10]
    dead = tables.functions("delta").read(spark, f"{place.table}.dead-letters").collect()
    assert sorted(bytes(row["value"]) for row in dead) == [b"no JSON %d" % each for each in range(10, 51, 10)]
    assert all(row["_corrupt"] and row["number"] is None for row in dead)
    columns = tables.functions("delta").read(spark, place.table).columns
    assert not {"value", "_corrupt"} & set(columns)
    assert {"key", "number", "kind", "partition", "offset", "timestamp", "date", "_ingest_batch"} <= set(columns)


def test_a_job_goes_on_where_it_was_and_every_tool_sees_how_far(spark: SparkSession, place: Place) -> None:
    send(place.bootstrap, place.topic, numbers(1, 30))
    ingest_run.run(spark, place.ingest())
    send(place.bootstrap, place.topic, numbers(31, 20))
    before = standing(f"{place.table}.checkpoint", place.bootstrap)
    assert sum(row["lag"] for row in before.rows) == 20
    ingest_run.run(spark, place.ingest())
    assert landed(spark, place.table) == [each for each in range(1, 51) if each % 10]
    assert sum(each["rows"] for each in place.progress) == 50
    assert place.progress[-1]["left"] == 0
    ends = {(place.topic, 0): 25, (place.topic, 1): 25}
    assert standing(f"{place.table}.checkpoint", place.bootstrap).offsets == ends
    assert committed(place.bootstrap, f"ottla-ingest-{place.topic}") == ends


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    from ottla.pipeline.wire.cluster import Cluster
    from ottla.pipeline.wire.groups import committed_offsets
    from ottla.pipeline.wire.settings import client_settings

    with Cluster(client_settings({"bootstrap.servers": bootstrap})) as cluster:
        return {place: each.offset for place, each in committed_offsets(cluster, group).items()}


def test_a_batch_whose_end_was_not_noted_comes_again_and_is_not_doubled(spark: SparkSession, place: Place) -> None:
    """As after a kill between the table's commit and Spark's note of it."""
    send(place.bootstrap, place.topic, numbers(1, 50))
    ingest_run.run(spark, place.ingest(offsets_max=30))
    last = max(Checkpoint(f"{place.table}.checkpoint").done_batches())
    for name in (f"{last}", f".{last}.crc"):
        Path(f"{place.table}.checkpoint", "commits", name).unlink()
    send(place.bootstrap, place.topic, numbers(51, 10))
    ingest_run.run(spark, place.ingest())
    assert landed(spark, place.table) == [each for each in range(1, 61) if each % 10]
    assert len(landed(spark, f"{place.table}.dead-letters", "offset")) == 6


def test_a_signal_ends_a_job_after_the_batch_at_work(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    send(place.bootstrap, place.topic, numbers(1, 500))
    add = streaming.Running._add

    def added(self: streaming.Running, batch: Any) -> None:
        before = self.totals.batches
        add(self, batch)
        if not before and self.totals.batches:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(streaming.Running, "_add", added)
        assert ingest_run.run(spark, place.ingest(offsets_max=10, interval_ms=0)) == 0
    assert "stopped: " in capsys.readouterr().out
    assert len(landed(spark, place.table)) < 450
    ingest_run.run(spark, place.ingest())
    assert landed(spark, place.table) == [each for each in range(1, 501) if each % 10]


def test_a_checkpoint_of_another_topic_is_refused(spark: SparkSession, place: Place) -> None:
    send(place.bootstrap, place.topic, numbers(1, 10))
    ingest_run.run(spark, place.ingest())
    create(place.bootstrap, f"{place.topic}-b")
    options = replace(place.ingest(), input=InputWords(place.bootstrap, (f"{place.topic}-b",)))
    with pytest.raises(
        CommandError, match=f"the checkpoint .* is of {place.topic}, and {place.topic} is not asked for"
    ):
        ingest_run.run(spark, options)


def test_a_job_may_have_an_end(spark: SparkSession, place: Place) -> None:
    send(place.bootstrap, place.topic, numbers(1, 30))
    until = PlaceWord(offsets={place.topic: {"0": 3, "1": 5}})
    ingest_run.run(spark, replace(place.ingest(), input=InputWords(place.bootstrap, (place.topic,), until=until)))
    assert standing(f"{place.table}.checkpoint", place.bootstrap).offsets == {(place.topic, 0): 3, (place.topic, 1): 5}
    assert landed(spark, place.table) == [1, 2, 3, 4, 5, 6, 7, 9]


def test_another_schema_is_refused_until_the_table_may_grow(spark: SparkSession, place: Place) -> None:
    send(place.bootstrap, place.topic, numbers(1, 10))
    ingest_run.run(spark, place.ingest())
    send(place.bootstrap, place.topic, [(11, '{"number": 11, "kind": "odd", "more": 1.5}')])
    wider = replace(place.ingest(), value=ValueWords("json", f"{JSON.schema}, more double"))
    with pytest.raises(CommandError, match="--merge-schema goes on with the new one"):
        ingest_run.run(spark, wider)
    ingest_run.run(spark, replace(wider, merge_schema=True))
    rows = tables.functions("delta").read(spark, place.table).orderBy("number").collect()
    assert [row["more"] for row in rows] == [None] * 9 + [1.5]


def test_a_batch_that_fails_names_what_it_reads(
    spark: SparkSession, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    send(place.bootstrap, place.topic, numbers(1, 20))
    ingest_run.run(spark, place.ingest())
    send(place.bootstrap, place.topic, numbers(21, 4))
    blocked = Path(place.table, f"topic={place.topic}")
    for file in blocked.iterdir():
        file.rename(blocked.parent / file.name)
    blocked.rmdir()
    blocked.write_text("a file where the rows' folder should be")
    with pytest.raises(CommandError) as failure:
        ingest_run.run(spark, place.ingest())
    assert "batch 1 failed: " in str(failure.value)
    assert f"It reads {place.topic}-0 offsets 10 to 11, {place.topic}-1 offsets 10 to 11" in str(failure.value)


# --- aggregate --------------------------------------------------------------------------------------------------------


def windows_of(place: Place, **more: Any) -> AggregateOptions:
    return options_of(
        {
            "input": InputWords(place.bootstrap, (place.topic,)),
            "stream": StreamWords(offsets_max=60),
            "session": SessionWords(progress=str(place.directory / "progress.jsonl")),
            "value": JSON,
            "window": "20 s",
            "slide": None,
            "watermark": "10 s",
            "keys": ("kind",),
            "measures": ("count(*) as count", "max(number) as most", "p50(number) as middle"),
            "table": place.table,
            "to_topic": None,
            "compact_every": 0,
        }
        | more
    )


def test_each_record_is_in_a_window_or_counted_as_late(spark: SparkSession, place: Place) -> None:
    """Three batches: the second has records of long ago, the third closes what came before it."""
    in_time = numbers(1, 60)
    late = [(each, text) for each, text in numbers(1, 20) if each % 10]
    send(place.bootstrap, place.topic, in_time)
    aggregate_run.run(spark, windows_of(place))
    send(place.bootstrap, place.topic, numbers(61, 30))
    aggregate_run.run(spark, windows_of(place))
    send(place.bootstrap, place.topic, late)
    aggregate_run.run(spark, windows_of(place))
    send(place.bootstrap, place.topic, numbers(200, 1) + numbers(1000, 1) + numbers(1001, 1))
    aggregate_run.run(spark, windows_of(place))
    found = tables.functions("delta").read(spark, place.table).collect()
    counts = {(row["window_start"].timestamp() - BEGAN_MS / 1000, row["kind"]): row["count"] for row in found}
    assert counts == windows(in_time + numbers(61, 30))
    assert sum(each["late"] for each in place.progress) == len(late)
    assert sum(each["corrupt"] for each in place.progress) == 9 + 2
    first = next(row for row in found if row["window_start"].timestamp() == BEGAN_MS / 1000 and row["kind"] == "odd")
    assert (first["most"], first["middle"]) == (19, 9)


def windows(records: list[tuple[int, str]]) -> dict[tuple[float, str], int]:
    """Of 20 seconds."""
    return dict(
        Counter(
            (20.0 * (second // 20), json.loads(text)["kind"]) for second, text in records if not text.startswith("no")
        )
    )


def test_windows_may_go_to_a_topic(spark: SparkSession, place: Place) -> None:
    create(place.bootstrap, f"{place.topic}-out")
    send(place.bootstrap, place.topic, numbers(1, 60) + numbers(1000, 2))
    more = {
        "table": None,
        "to_topic": f"{place.topic}-out",
        "stream": StreamWords(checkpoint=str(place.directory / "c")),
    }
    aggregate_run.run(spark, windows_of(place, **more))
    rows = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", place.bootstrap)
        .option("kafka.isolation.level", "read_committed")
    )
    found = rows.option("subscribe", f"{place.topic}-out").load().collect()
    told = [json.loads(row["value"]) for row in found]
    seconds = [datetime.fromisoformat(each["window_start"]).timestamp() - BEGAN_MS / 1000 for each in told]
    counts = {(at, each["kind"]): each["count"] for at, each in zip(seconds, told, strict=True)}
    assert counts == windows(numbers(1, 60))
    assert {bytes(row["key"]) for row in found} == {b'{"kind":"even"}', b'{"kind":"odd"}'}
