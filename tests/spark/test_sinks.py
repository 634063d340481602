"""The sinks as Spark calls them: batches, replays, complete results, tables and topics."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.pipeline import register
from ottla.pipeline.sinks import delta, parquet
from ottla.testing.processes import ProcessCluster
from tests.integration.topic_tasks import PARTITIONS, committed

SINKS: dict[str, Any] = {"ottla-delta": delta, "ottla-parquet": parquet}


@pytest.fixture(params=SINKS)
def form(request: pytest.FixtureRequest, spark: SparkSession) -> str:
    register(spark)
    return str(request.param)


class Input:
    """A folder of files, each of which becomes a batch: offsets 10 n to 10 n + 9 of topic t, in two partitions."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder / "in"
        self.folder.mkdir()
        self._files = 0

    def add(self) -> None:
        at = self._files * 10
        table = pa.table(
            {
                "topic": ["t"] * 10,
                "partition": pa.array([number % 2 for number in range(10)], pa.int32()),
                "offset": pa.array(range(at, at + 10), pa.int64()),
                "value": [f"row-{number}" for number in range(at, at + 10)],
            }
        )
        path = self.folder / f"{self._files:04}.parquet"
        pq.write_table(table, path)
        written_s = (
            int(time.time()) - 1_000 + self._files
        )  # Spark takes them in this order: two of one moment come in any
        os.utime(path, (written_s, written_s))
        self._files += 1

    def stream(self) -> DataFrame:
        schema = "topic string, partition int, offset bigint, value string"
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


@pytest.fixture
def input_(spark: SparkSession, tmp_path: Path) -> Input:
    return Input(spark, tmp_path)


def run(writer: DataStreamWriter, tmp_path: Path, path: str | None = None) -> None:
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writer.start(path) if path else writer.start()
    query.awaitTermination(300)
    assert not query.isActive


def forget_last_commit(tmp_path: Path) -> None:
    """As a kill between the sink's commit and Spark's note of it leaves the checkpoint."""
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()


def test_batches_land_once_though_one_comes_again(
    form: str, spark: SparkSession, input_: Input, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")

    def land() -> None:
        rows = input_.stream().repartition(2, "partition")
        run(rows.writeStream.format(form).option("partitionBy", "partition"), tmp_path, table)

    input_.add()
    input_.add()
    land()
    forget_last_commit(tmp_path)
    input_.add()
    land()
    found = SINKS[form].read(spark, table)
    assert [row.value for row in found.orderBy("offset").collect()] == [f"row-{number}" for number in range(30)]
    assert found.columns == ["topic", "partition", "offset", "value"]
    commits = SINKS[form].commits(table)
    assert [each.batch for each in commits] == [0, 1, 2]
    assert commits[1].offsets == {"t": {"0": [10, 18, 5], "1": [11, 19, 5]}}
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert SINKS[form].last_version(table, query) == 2
    assert len(list((tmp_path / "table").rglob("part-*.parquet"))) == len(SINKS[form].committed_files(table))


@pytest.mark.parametrize("form", ["ottla-delta"], indirect=True)
def test_a_changed_schema_ends_the_query_with_the_columns(form: str, input_: Input, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    input_.add()
    run(input_.stream().writeStream.format(form), tmp_path, table)
    input_.add()
    changed = input_.stream().selectExpr("*", "offset + 1 AS following")
    with pytest.raises(StreamingQueryException, match=r"the rows also have following\. With mergeSchema=true"):
        run(changed.writeStream.format(form), tmp_path, table)
    run(changed.writeStream.format(form).option("mergeSchema", "true"), tmp_path, table)
    found = SINKS[form].read(input_.spark, table)
    assert found.where("following is null").count() == 10
    assert found.where("following = offset + 1").count() == 10


@pytest.mark.parametrize("form", ["ottla-parquet"], indirect=True)
def test_a_complete_result_takes_the_place_of_the_one_before(form: str, input_: Input, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    for _ in range(2):
        input_.add()
        counts = input_.stream().groupBy("partition").count()
        run(counts.writeStream.format(form).outputMode("complete"), tmp_path, table)
    rows = SINKS[form].read(input_.spark, table).orderBy("partition").collect()
    assert [(row.partition, row["count"]) for row in rows] == [(0, 10), (1, 10)]


def test_a_named_write_is_there_once(form: str, spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    rows = spark.range(100, numPartitions=2)
    for version in (0, 0, 1):
        named = rows.write.format(form).option("txnAppId", "load").option("txnVersion", version)
        named.mode("append").save(table)
    assert SINKS[form].read(spark, table).count() == 200
    rows.limit(3).write.format(form).mode("overwrite").save(table)
    assert SINKS[form].read(spark, table).count() == 3


@pytest.mark.parametrize("form", ["ottla-delta"], indirect=True)
def test_rows_that_do_not_parse_have_their_own_table(form: str, input_: Input, tmp_path: Path) -> None:
    table, dead = str(tmp_path / "table"), str(tmp_path / "dead")
    input_.add()
    rows = input_.stream().selectExpr("*", "if(offset = 4, 'no JSON', null) AS _corrupt")
    writer = rows.writeStream.format(form).option("deadLetterPath", dead).option("deadLetterColumn", "_corrupt")
    run(writer.option("batchColumn", "_batch"), tmp_path, table)
    assert SINKS[form].read(input_.spark, table).where("_batch = 0").count() == 9
    (row,) = SINKS[form].read(input_.spark, dead).collect()
    assert (row.offset, row._corrupt, row._batch) == (4, "no JSON", 0)


# -- topics -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def made(node: ProcessCluster, topic: str, spark: SparkSession) -> str:
    register(spark)
    admin = AdminClient({"bootstrap.servers": node.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    node.wait_for_topic(topic, PARTITIONS)
    return topic


def test_a_topic_holds_each_row_once_though_a_batch_comes_again(
    bootstrap: str, made: str, input_: Input, tmp_path: Path
) -> None:
    def send() -> None:
        rows = input_.stream().repartition(2, "partition").selectExpr("value AS key", "value")
        writer = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", made)
        run(writer, tmp_path)

    input_.add()
    input_.add()
    send()
    forget_last_commit(tmp_path)
    input_.add()
    send()
    assert committed(bootstrap, made, 30) == sorted(f"row-{number}" for number in range(30))


def test_a_batch_that_comes_again_after_the_brokers_forgot_it_is_not_doubled_unasked(
    bootstrap: str, made: str, input_: Input, tmp_path: Path
) -> None:
    def send(**options: str) -> None:
        rows = input_.stream().coalesce(1).selectExpr("value")
        writer = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", made)
        run(writer.options(**options), tmp_path)

    input_.add()
    send()
    forget_last_commit(tmp_path)
    planned_s = time.time() - 8 * 86_400
    os.utime(tmp_path / "checkpoint" / "offsets" / "0", (planned_s, planned_s))
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups([f"ottla.{query}.0"])[f"ottla.{query}.0"].result(60)
    with pytest.raises(StreamingQueryException, match="whether its rows are in the topic cannot be told"):
        send()
    input_.add()
    send(lateReplay="skip")
    assert committed(bootstrap, made, 20) == sorted(f"row-{number}" for number in range(20))


@pytest.mark.parametrize("named", [True, False])
def test_a_write_to_a_topic(named: bool, bootstrap: str, made: str, spark: SparkSession) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", f"'{made}' AS topic", "CAST(id % 3 AS INT) AS partition"
    )
    for _ in range(2):
        writer = rows.write.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        if named:
            writer = writer.option("txnAppId", made).option("txnVersion", 0)
        writer.mode("append").save()
    times = 1 if named else 2
    assert committed(bootstrap, made, 100 * times) == sorted([str(number) for number in range(100)] * times)
