"""A query that was killed while it wrote down its very first batch begins as if it had never been started."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline import register
from ottla.pipeline.jobs import ingest_run, tables
from ottla.pipeline.jobs.checkpoint_files import MANAGER
from ottla.pipeline.jobs.ingest import IngestOptions
from ottla.pipeline.jobs.values import ValueWords
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords
from ottla.pipeline.unbegun import clear_unbegun
from tests.spark.records import count_up, create

REFUSED = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
FILE_CONTEXT = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
"""Spark's default."""


def leave_half(spark: SparkSession, checkpoint: str, name: str = "offsets/0") -> None:
    """As Spark itself writes such a file, up to the moment before its rename."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(checkpoint, name)
    manager = context._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
        path.getParent(), spark._jsparkSession.sessionState().newHadoopConf()
    )
    manager.mkdirs(path.getParent())
    manager.createAtomic(path, False).write(b"v1\n")


def copied(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> StreamingQuery:
    register(spark)
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = reader.option("startingOffsets", "earliest").load()
    land = frame.writeStream.format("ottla-delta").option("checkpointLocation", f"{directory}/checkpoint")
    return land.trigger(availableNow=True).start(f"{directory}/table")


def landed(spark: SparkSession, directory: Path) -> list[int]:
    rows = tables.functions("delta").read(spark, f"{directory}/table").select("value").collect()
    return sorted(int(row["value"]) for row in rows)


@pytest.mark.parametrize("manager", ["of jobs", FILE_CONTEXT])
def test_a_query_begins_where_its_first_batch_was_half_written_down(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, manager: str
) -> None:
    """Spark alone refuses it for ever."""
    create(bootstrap, topic)
    count_up(bootstrap, topic, 20)
    before = spark.conf.get(MANAGER)
    assert before is not None
    spark.conf.set(MANAGER, before if manager == "of jobs" else manager)
    try:
        leave_half(spark, f"{tmp_path}/checkpoint")
        with pytest.raises(StreamingQueryException, match=REFUSED):
            copied(spark, bootstrap, topic, tmp_path).awaitTermination(300)
        assert len(clear_unbegun(spark, f"{tmp_path}/checkpoint")) == 1
        copied(spark, bootstrap, topic, tmp_path).awaitTermination(300)
    finally:
        spark.conf.set(MANAGER, before)
    assert landed(spark, tmp_path) == list(range(20))
    assert clear_unbegun(spark, f"{tmp_path}/checkpoint") == []


def test_a_job_begins_by_itself_where_it_was_killed_in_its_first_batch_twice(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(bootstrap, topic)
    count_up(bootstrap, topic, 20)
    words = InputWords(bootstrap, (topic,)), StreamWords(), SessionWords(), ValueWords()
    job = IngestOptions(*words, f"{tmp_path}/table", compact_every=0)
    for _ in range(2):
        leave_half(spark, job.checkpoint)
    assert ingest_run.run(spark, job) == 0
    told = capsys.readouterr()
    assert (told.out + told.err).count("ended in its very first batch") == 2
    assert landed(spark, tmp_path) == list(range(20))


def test_a_checkpoint_that_lost_its_batches_is_refused_still(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Half put back from a backup, say: to begin anew would read again what was landed."""
    create(bootstrap, topic)
    count_up(bootstrap, topic, 20)
    copied(spark, bootstrap, topic, tmp_path).awaitTermination(300)
    for file in (tmp_path / "checkpoint" / "offsets").iterdir():
        file.unlink()
    leave_half(spark, f"{tmp_path}/checkpoint")
    clear_unbegun(spark, f"{tmp_path}/checkpoint")
    with pytest.raises(StreamingQueryException):
        copied(spark, bootstrap, topic, tmp_path).awaitTermination(300)
    assert landed(spark, tmp_path) == list(range(20))
