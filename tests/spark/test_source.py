"""``format("ottla")`` inside Spark: what needs a session to be seen. The rest is in tests/unit/pipeline and tests/integration/pipeline."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline import register
from tests.spark.records import count_up, create, fill, in_order, rows_of, written_in


@pytest.fixture(autouse=True)
def known(spark: SparkSession) -> None:
    register(spark)


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def test_every_record_is_read_as_sparks_own_connector_reads_it(spark: SparkSession, bootstrap: str, topic: str) -> None:
    committed = fill(bootstrap, topic)
    options = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    found = read(spark, bootstrap, topic, **options)

    assert written_in(rows_of(found)) == in_order(committed)
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    theirs = kafka.options(**options).load()
    assert found.schema == theirs.schema
    assert sorted(map(str, rows_of(found))) == sorted(map(str, rows_of(theirs)))


def stream_to_parquet(
    spark: SparkSession, bootstrap: str, topic: str, directory: Path, source: str = "ottla"
) -> StreamingQuery:
    frame = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "60")
    writer = frame.load().writeStream.format("parquet").option("path", str(directory / "table"))
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()


def test_a_checkpoint_moves_between_sparks_connector_and_ours(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 2)
    for round_, source in enumerate(("ottla", "kafka", "ottla")):
        count_up(bootstrap, topic, 100, partitions=2, first=100 * round_)
        query = stream_to_parquet(spark, bootstrap, topic, tmp_path, source)
        assert query.awaitTermination(60)
        assert query.exception() is None

    found = spark.read.parquet(str(tmp_path / "table")).select("value").collect()
    assert sorted(int(row.value) for row in found) == list(range(300))
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    offsets = json.loads(newest.read_text().splitlines()[2])
    assert offsets[topic] == {"0": 150, "1": 150}
    assert [each for name, each in offsets.items() if name.startswith(f"{topic}:")] == [{}]


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
