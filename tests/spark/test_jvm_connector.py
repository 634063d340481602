"""Spark's own Kafka connector reads from Ottla and writes to it as it does with Apache Kafka."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.records import AT_ONCE, BEGAN, EVERY, count_up, create, fill, in_order, rows_of, written_in


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**AT_ONCE, **options).load()


def test_the_connector_reads_every_record_with_its_headers_and_times(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    committed = fill(bootstrap, topic)
    options = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    rows = rows_of(read(spark, bootstrap, topic, **options))
    assert written_in(rows) == in_order(committed)
    assert {row[6] for row in rows} == {0}  # as the producer said


def test_the_connector_sees_what_is_not_committed_unless_it_asks_not_to(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    committed = fill(bootstrap, topic)
    assert read(spark, bootstrap, topic).count() == len(committed) + 30


def test_the_connector_sees_the_time_of_the_broker(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    began = datetime.now(UTC).replace(microsecond=0)
    count_up(bootstrap, topic, 10)
    rows = rows_of(read(spark, bootstrap, topic))
    assert [row[6] for row in rows] == [1] * 10
    assert began <= min(row[5] for row in rows) <= max(row[5] for row in rows) <= datetime.now(UTC)


@pytest.fixture(params=["admin client", "consumer"])
def offsets_by(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """What the connector's driver asks for offsets."""
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(name, str(request.param == "consumer").lower())
    yield request.param
    spark.conf.unset(name)


@pytest.mark.usefixtures("offsets_by")
def test_the_connector_finds_offsets_by_time(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    count_up(bootstrap, topic, 100, partitions=2)
    from_ms, to_ms = (int((BEGAN + number * EVERY).timestamp() * 1000) for number in (20, 60))
    found = read(spark, bootstrap, topic, startingTimestamp=str(from_ms), endingTimestamp=str(to_ms))
    assert sorted(int(row.value) for row in found.select("value").collect()) == list(range(20, 60))
    exact = {
        "startingOffsets": json.dumps({topic: {"0": 5, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": -1, "1": 3}}),
    }
    assert read(spark, bootstrap, topic, **exact).count() == 45 + 3


def test_the_connector_splits_partitions_and_takes_topics_by_pattern(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    for number in range(2):
        create(bootstrap, f"{topic}-{number}")
        count_up(bootstrap, f"{topic}-{number}", 100)
    reader = spark.read.format("kafka").options(**AT_ONCE).option("kafka.bootstrap.servers", bootstrap)
    frame = reader.option("subscribePattern", f"{topic}-.*").option("minPartitions", "6").load()
    assert frame.rdd.getNumPartitions() >= 6
    assert [row["count"] for row in frame.groupBy("topic").count().collect()] == [100, 100]


def stream_to_parquet(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> StreamingQuery:
    source = spark.readStream.format("kafka").options(**AT_ONCE).option("kafka.bootstrap.servers", bootstrap)
    frame = source.option("subscribe", topic).option("startingOffsets", "earliest")
    frame = frame.option("maxOffsetsPerTrigger", "50").option("kafka.isolation.level", "read_committed")
    writer = frame.load().writeStream.format("parquet").option("path", str(directory / "table"))
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()


def test_the_connector_streams_and_goes_on_after_a_restart(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 2)
    for first in (0, 100):
        count_up(bootstrap, topic, 100, partitions=2, first=first)
        query = stream_to_parquet(spark, bootstrap, topic, tmp_path)
        assert query.awaitTermination(60)
        assert query.exception() is None
    found = spark.read.parquet(str(tmp_path / "table")).select("partition", "offset", "value").collect()
    assert sorted(int(row.value) for row in found) == list(range(200))
    offsets = [json.loads(line) for line in last_offsets(tmp_path / "checkpoint")]
    assert offsets == [{topic: {"0": 100, "1": 100}}]


def last_offsets(checkpoint: Path) -> list[str]:
    newest = max(
        (file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
    )
    return newest.read_text().splitlines()[2:]


def test_the_connector_writes_keys_values_headers_and_partitions(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic, 3)
    numbers = spark.range(300).select(
        f.when(f.col("id") % 5 > 0, f.col("id").cast("string").cast("binary")).alias("key"),
        f.when(f.col("id") % 7 > 0, f.col("id").cast("string").cast("binary")).alias("value"),
        (f.col("id") % 3).cast("int").alias("partition"),
        f.array(f.struct(f.lit("n").alias("key"), f.col("id").cast("string").cast("binary").alias("value"))).alias(
            "headers"
        ),
    )
    numbers.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).option(
        "includeHeaders", "true"
    ).save()
    rows = rows_of(read(spark, bootstrap, topic, includeHeaders="true"))
    text = [(row[1], int(row[7][0][1] or b"-1"), row[3], row[4]) for row in rows]
    assert sorted(number for _, number, _, _ in text) == list(range(300))
    for partition, number, key, value in text:
        assert partition == number % 3
        assert key == (str(number).encode() if number % 5 else None)
        assert value == (str(number).encode() if number % 7 else None)


def test_the_connector_streams_from_a_topic_to_a_topic(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 2)
    create(bootstrap, f"{topic}-copy", 2)
    count_up(bootstrap, topic, 200, partitions=2)
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = source.options(**AT_ONCE, startingOffsets="earliest").load().select("key", "value", "partition")
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", f"{topic}-copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert query.exception() is None
    assert numbers_in(bootstrap, f"{topic}-copy", 2) == {0: list(range(0, 200, 2)), 1: list(range(1, 200, 2))}


def numbers_in(bootstrap: str, topic: str, partitions: int) -> dict[int, list[int]]:
    """By partition, as librdkafka reads them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    ends = sum(consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in range(partitions))
    found = [message for message in consumer.consume(ends, timeout=60) if not message.error()]
    consumer.close()
    found.sort(key=lambda message: (message.partition(), message.offset()))
    groups = groupby(found, key=lambda message: message.partition())
    return {partition: [int(message.value() or b"-1") for message in messages] for partition, messages in groups}
