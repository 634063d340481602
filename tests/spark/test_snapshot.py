"""A snapshot has the latest record of each key at its ends, whether it is taken at once or goes on from an earlier one."""

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.places import LATEST, Place
from ottla.pipeline.jobs.snapshot import SnapshotOptions
from ottla.pipeline.jobs.snapshot_run import run
from ottla.pipeline.jobs.words import SessionWords
from ottla.pipeline.sinks import delta
from ottla.pipeline.wire.producer import Producer
from tests.spark.records import create

Told = list[tuple[str | None, str | None, int]]


def write(bootstrap: str, topic: str, records: Told) -> None:
    """Key, value, partition; a second apart."""
    keys, values, partitions = zip(*records, strict=True)
    columns = {
        "key": pa.array([key and key.encode() for key in keys], pa.binary()),
        "value": pa.array([value and value.encode() for value in values], pa.binary()),
        "partition": pa.array(partitions, pa.int32()),
    }
    with Producer.of({"bootstrap.servers": bootstrap}) as producer:
        producer.send(pa.table(columns), topic)


def options(
    bootstrap: str, topic: str, table: Path, since: Path | None = None, until: Place | None = None
) -> SnapshotOptions:
    words = SessionWords(output="json")
    place = until or Place(word=LATEST)
    return SnapshotOptions(
        words, bootstrap, topic, place, str(table), "delta", str(since) if since else None, "ottla", {}
    )


def rows(spark: SparkSession, table: Path) -> dict[str, tuple[str, int, int]]:
    found = delta.read(spark, str(table)).collect()
    assert len(found) == len({row["key"] for row in found})
    return {row["key"].decode(): (row["value"].decode(), row["partition"], row["offset"]) for row in found}


def test_a_snapshot_goes_on_from_the_one_before_and_is_as_if_taken_at_once(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 2, {"cleanup.policy": "compact"})
    write(bootstrap, topic, [("a", "1", 0), ("b", "1", 0), ("c", "1", 1), ("a", "2", 0), ("d", "1", 1)])
    table, whole, early = tmp_path / "snapshot", tmp_path / "whole", tmp_path / "early"
    run(spark, options(bootstrap, topic, table))
    first = rows(spark, table)
    assert first == {"a": ("2", 0, 2), "b": ("1", 0, 1), "c": ("1", 1, 0), "d": ("1", 1, 1)}

    write(bootstrap, topic, [("b", None, 0), ("c", "2", 1), ("e", "1", 0), ("f", None, 0)])
    run(spark, options(bootstrap, topic, table, since=table))
    run(spark, options(bootstrap, topic, whole))
    assert (
        rows(spark, table)
        == rows(spark, whole)
        == {
            "a": ("2", 0, 2),
            "c": ("2", 1, 2),
            "d": ("1", 1, 1),
            "e": ("1", 0, 4),
        }
    )
    run(spark, options(bootstrap, topic, early, until=Place(offsets={topic: {"0": 3, "1": 2}})))
    assert rows(spark, early) == first
    with pytest.raises(CommandError, match=r"reaches to 6 of .*-0, and this one ends at 3"):
        run(spark, options(bootstrap, topic, early, since=table, until=Place(offsets={topic: {"0": 3, "1": 2}})))


def test_a_key_in_two_partitions_is_there_once_with_its_youngest_record(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(bootstrap, topic, 2)
    write(bootstrap, topic, [("a", "old", 1), (None, "no key", 0), ("b", "x", 0)])
    write(bootstrap, topic, [("a", "young", 0)])
    run(spark, options(bootstrap, topic, tmp_path / "t"))
    assert rows(spark, tmp_path / "t") == {"a": ("young", 0, 2), "b": ("x", 0, 1)}
    assert '"without key": 1' in capsys.readouterr().out
    # What was deleted from the beginning of the log is in no snapshot any more, also in one that goes on.
    write(bootstrap, topic, [("c", "z", 0)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deleted = admin.delete_records([TopicPartition(topic, 0, 2)])
    assert all(each.result(60) for each in deleted.values())
    run(spark, options(bootstrap, topic, tmp_path / "t", since=tmp_path / "t"))
    assert rows(spark, tmp_path / "t") == {"a": ("young", 0, 2), "c": ("z", 0, 3)}


def test_a_table_that_no_snapshot_wrote_stays_as_it_is(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic)
    spark.createDataFrame([("x",)], "key string").write.format("ottla-delta").mode("append").save(str(tmp_path))
    with pytest.raises(CommandError, match="that no snapshot wrote"):
        run(spark, options(bootstrap, topic, tmp_path))
    with pytest.raises(CommandError, match="there is no topic nobody"):
        run(spark, options(bootstrap, "nobody", tmp_path / "other"))
    with pytest.raises(CommandError, match="leave --since out the first time"):
        run(spark, options(bootstrap, topic, tmp_path / "other", since=tmp_path / "other"))
