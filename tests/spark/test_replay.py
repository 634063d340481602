"""A table's rows go to a topic in their order, each once, however often the replay is started."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from ottla.cli.failures import CommandError
from ottla.pipeline import register
from ottla.pipeline.jobs.places import EARLIEST, LATEST, Place
from ottla.pipeline.jobs.replay import ReplayOptions
from ottla.pipeline.jobs.replay_run import PLAN, PROGRESS, run
from ottla.pipeline.jobs.words import SessionWords
from tests.spark.records import create

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, place int"
Found = list[tuple[str, str, int, int]]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 rows of three partitions, in no order; ``place`` runs against the offsets."""
    register(spark)
    path = tmp_path_factory.mktemp("tables") / "t"
    rows = [
        (
            f"k{number % 5}".encode(),
            str(number).encode(),
            "origin",
            number % 3,
            100 + number // 3,
            BEGAN + timedelta(seconds=number),
            1_000 - number,
        )
        for number in range(120)
    ]
    shuffled = [rows[number * 77 % 120] for number in range(120)]
    spark.createDataFrame(shuffled, SCHEMA).write.format("ottla-delta").mode("append").save(str(path))
    return path


def options(bootstrap: str, table: Path, topic: str) -> ReplayOptions:
    return ReplayOptions(
        SessionWords(output="json"),
        bootstrap,
        str(table),
        "auto",
        topic,
        where=None,
        start=Place(word=EARLIEST),
        until=Place(word=LATEST),
        order_by=None,
        preserve_partition=True,
        preserve_timestamps=True,
        rate=None,
        chunk=50,
        compression="lz4",
        checkpoint=None,
        dry_run=False,
    )


def read(bootstrap: str, topic: str, partitions: int) -> Found:
    """Key, value, partition, timestamp of what is committed, partition by partition."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "r",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # else half a second at the end of each partition
    }
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    found: Found = []
    for partition in range(partitions):
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            found.append((key.decode(), value.decode(), partition, message.timestamp()[1]))
    consumer.close()
    return found


def expected(numbers: Sequence[int]) -> Found:
    began_ms = round(BEGAN.timestamp() * 1000)
    return [
        (f"k{number % 5}", str(number), number % 3, began_ms + number * 1_000)
        for number in sorted(numbers, key=lambda number: (number % 3, number))
    ]


def test_rows_go_to_their_partitions_in_order_and_a_chunk_that_comes_again_is_skipped(
    spark: SparkSession, bootstrap: str, topic: str, table: Path, tmp_path: Path
) -> None:
    create(bootstrap, topic, 3)
    words = replace(options(bootstrap, table, topic), checkpoint=str(tmp_path))
    run(spark, words)
    assert read(bootstrap, topic, 3) == expected(range(120))
    assert (tmp_path / PROGRESS).read_text() == "3\n"
    (tmp_path / PROGRESS).write_text("2\n")  # killed between the commit of the last chunk and its note
    run(spark, words)
    assert read(bootstrap, topic, 3) == expected(range(120))
    with pytest.raises(CommandError, match="of another replay: where was None, and is partition = 1"):
        run(spark, replace(words, where="partition = 1"))
    (tmp_path / PLAN).write_text("{")
    with pytest.raises(CommandError, match="its plan cannot be read"):
        run(spark, words)


def test_chosen_rows_of_a_key_come_in_the_order_of_a_column(
    spark: SparkSession, bootstrap: str, topic: str, table: Path
) -> None:
    create(bootstrap, topic, 2)
    words = replace(
        options(bootstrap, table, topic),
        where="key IN (cast('k1' AS binary), cast('k2' AS binary))",
        start=Place(time_ms=round(BEGAN.timestamp() * 1000) + 20_000),
        until=Place(offsets={"origin": {"0": 130, "1": 130, "2": 130}}),
        order_by="place",
        preserve_partition=False,
        preserve_timestamps=False,
        chunk=7,
    )
    run(spark, replace(words, dry_run=True))
    assert read(bootstrap, topic, 2) == []
    run(spark, words)
    found = read(bootstrap, topic, 2)
    chosen = [number for number in range(20, 90) if number % 5 in (1, 2)]
    assert sorted(int(value) for _, value, _, _ in found) == chosen
    for key in (1, 2):
        of_key = [int(value) for name, value, _, _ in found if name == f"k{key}"]
        assert of_key == sorted(of_key, reverse=True)


def test_what_cannot_be_replayed_is_refused_before_anything_is_sent(
    spark: SparkSession, bootstrap: str, topic: str, table: Path, tmp_path: Path
) -> None:
    words = options(bootstrap, table, topic)
    with pytest.raises(CommandError, match="there is no topic"):
        run(spark, words)
    create(bootstrap, topic, 2)
    with pytest.raises(CommandError, match=r"come from partition 2, and .* has 2 partitions"):
        run(spark, words)
    with pytest.raises(CommandError, match="there is no table at"):
        run(spark, replace(words, table=str(tmp_path)))
    with pytest.raises(CommandError, match="it is a binary; rows can be put in the order of numbers"):
        run(spark, replace(words, order_by="key"))
    spark.sql("SELECT 'v' value, CAST(NULL AS int) place").write.parquet(str(tmp_path / "bare"))
    with pytest.raises(CommandError, match="no column partition, which the order of the rows"):
        run(spark, replace(words, table=str(tmp_path / "bare"), preserve_partition=False, preserve_timestamps=False))
    bare = replace(words, table=str(tmp_path / "bare"), order_by="place", preserve_partition=False)
    with pytest.raises(CommandError, match="1 rows have none"):
        run(spark, replace(bare, preserve_timestamps=False))
    assert read(bootstrap, topic, 2) == []
