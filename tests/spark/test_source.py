"""``format("ottla")`` inside Spark: what needs a session to be seen. The rest is in tests/unit/pipeline and tests/integration/pipeline."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline import register
from tests.spark.records import count_up, create


@pytest.fixture(autouse=True)
def known(spark: SparkSession) -> None:
    register(spark)


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


AVRO = {
    "type": "record",
    "name": "A",
    "fields": [
        {"name": "doors", "type": {"type": "map", "values": "int"}},
        {
            "name": "at",
            "type": {"type": "record", "name": "At", "fields": [{"name": "lat", "type": ["null", "double"]}]},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "here", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
    ],
}
RECORD = {
    "doors": {"left": 1},
    "at": {"lat": 48.5},
    "tags": ["a", "b"],
    "made": datetime(2026, 1, 1, tzinfo=UTC),
    "here": datetime(2026, 1, 2),
    "day": date(2026, 1, 3),
    "price": Decimal("12.34"),
    "raw": b"ab",
}


def test_columns_of_every_type_come_through_spark(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO), RECORD)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (buffer.getvalue(), b"nonsense", None):
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    frame = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    options = {"startingOffsets": "earliest", "value.format": "avro", "value.schema": json.dumps(AVRO)}
    query = (
        frame.options(**options)
        .load()
        .writeStream.format("memory")
        .queryName("avro")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    good, bad, tombstone = (row.asDict(recursive=True) for row in spark.table("avro").orderBy("offset").collect())

    assert {name: good[name] for name in RECORD} == {**RECORD, "made": good["made"]}
    assert good["made"].astimezone(UTC) == RECORD["made"]
    assert good["_corrupt"] is tombstone["_corrupt"] is bad["doors"] is tombstone["doors"] is None
    assert bad["_corrupt"]


def test_filters_and_columns_are_narrowed_inside_the_source(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    count_up(bootstrap, topic, 200, partitions=2)
    options = {
        "pushdown": "true",
        "value.format": "json",
        "value.schema": "a int",
        "columns": "partition,offset,_corrupt",
    }
    found = read(spark, bootstrap, topic, **options).where("partition = 1 and offset >= 90 and offset < 95")

    assert [(row.partition, row.offset) for row in found.orderBy("offset").collect()] == [(1, n) for n in range(90, 95)]
    assert found.rdd.getNumPartitions() == 1
    assert found.where("_corrupt is null").count() == 0  # numbers are no objects


def test_what_is_wrong_is_said_in_one_line(spark: SparkSession, bootstrap: str, topic: str) -> None:
    with pytest.raises(Exception, match="there is no option startingoffset; is startingOffsets meant"):
        read(spark, bootstrap, topic, startingOffset="earliest")
    with pytest.raises(Exception, match=f"there is no topic {topic}"):
        read(spark, bootstrap, topic).count()
