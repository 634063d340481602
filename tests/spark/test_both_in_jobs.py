"""The same jobs through our source and through Spark's own connector make the same tables, of Ottla's topics and of Apache Kafka's."""

import json
from pathlib import Path
from typing import Any

import deltalake
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ottla.pipeline.jobs import aggregate_run, ingest_run
from ottla.pipeline.jobs.aggregate import AggregateOptions
from ottla.pipeline.jobs.ingest import IngestOptions
from ottla.pipeline.jobs.measures import measure_of
from ottla.pipeline.jobs.values import ValueWords
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords
from tests.spark.records import AT_ONCE, BEGAN, EVERY, create

RECORDS = 600
JSON = ValueWords("json", "number int, kind string")


def fill(broker: str, topic: str) -> None:
    """A record a second; every tenth value does not parse. The last ones move the watermark far on."""
    create(broker, topic, 2)
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 5})
    for number in range(RECORDS):
        value = (
            json.dumps({"number": number, "kind": ("even", "odd")[number % 2]}) if number % 10 else f"no JSON {number}"
        )
        at_ms = int((BEGAN + number * EVERY).timestamp() * 1000)
        producer.produce(topic, value, str(number), number // 2 % 2, timestamp=at_ms)
    for partition in range(2):
        at_ms = int((BEGAN + 10 * RECORDS * EVERY).timestamp() * 1000)
        producer.produce(topic, json.dumps({"number": -1, "kind": "last"}), None, partition, timestamp=at_ms)
    assert producer.flush(30) == 0


def words_of(
    source: str, broker: str, topic: str, value: ValueWords
) -> tuple[InputWords, StreamWords, SessionWords, ValueWords]:
    return (
        InputWords(broker, (topic,), source=source, options=AT_ONCE),
        StreamWords(offsets_max=400),
        SessionWords(),
        value,
    )


def rows_of(table: str, *without: str) -> list[dict[str, Any]]:
    """Sorted."""
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    kept = [{name: field for name, field in row.items() if name not in without} for row in rows]
    return sorted(kept, key=repr)


@pytest.mark.parametrize("value", [ValueWords(), JSON], ids=["bytes", "json"])
def test_ingest_lands_the_same_rows_from_both_sources(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path, value: ValueWords
) -> None:
    fill(broker, topic)
    for source in ("jvm", "ottla"):
        options = IngestOptions(*words_of(source, broker, topic, value), table=str(tmp_path / source), compact_every=0)
        assert not ingest_run.run(spark, options)
    ours = rows_of(str(tmp_path / "ottla"), "_ingest_batch")
    assert ours == rows_of(str(tmp_path / "jvm"), "_ingest_batch")
    faulty = RECORDS // 10 if value.format else 0
    assert len(ours) == RECORDS + 2 - faulty
    if faulty:
        dead = [
            rows_of(str(tmp_path / f"{source}.dead-letters"), "_ingest_batch", "_corrupt")
            for source in ("ottla", "jvm")
        ]
        assert dead[0] == dead[1]
        assert len(dead[0]) == faulty


def test_aggregate_counts_the_same_from_both_sources(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(bootstrap, topic)
    for source in ("jvm", "ottla"):
        options = AggregateOptions(
            *words_of(source, bootstrap, topic, JSON),
            window="300000 milliseconds",
            watermark="60000 milliseconds",
            keys=(measure_of("kind", "--by"),),
            measures=(measure_of("count(*) as count", "--measure"), measure_of("avg(number) as mean", "--measure")),
            table=str(tmp_path / source),
        )
        assert not aggregate_run.run(spark, options)
    windows = rows_of(str(tmp_path / "ottla"))
    assert windows == rows_of(str(tmp_path / "jvm"))
    assert sum(row["count"] for row in windows) == RECORDS - RECORDS // 10
