"""A job whose checkpoint was put back from a backup: what it planned since is planned anew, under numbers that are taken."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs import ingest_run, tables
from ottla.pipeline.jobs.ingest import IngestOptions
from ottla.pipeline.jobs.places import Place
from ottla.pipeline.jobs.values import ValueWords
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords
from tests.spark.records import count_up, create


@pytest.fixture
def job(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> IngestOptions:
    """With one batch that a backup knows, and one that it does not."""
    create(bootstrap, topic)
    words = InputWords(bootstrap, (topic,)), StreamWords(), SessionWords(), ValueWords()
    job = IngestOptions(*words, f"{tmp_path}/table", compact_every=0)
    count_up(bootstrap, topic, 30)
    ingest_run.run(spark, job)
    shutil.copytree(job.checkpoint, tmp_path / "backup")
    count_up(bootstrap, topic, 20, first=30)
    ingest_run.run(spark, job)
    shutil.rmtree(job.checkpoint)
    shutil.copytree(tmp_path / "backup", job.checkpoint)
    return job


def landed(spark: SparkSession, job: IngestOptions) -> list[int]:
    rows = tables.functions("delta").read(spark, job.table).select("value").collect()
    return sorted(int(row["value"]) for row in rows)


def test_where_nothing_came_since_the_job_goes_on_and_doubles_nothing(
    spark: SparkSession, bootstrap: str, topic: str, job: IngestOptions
) -> None:
    assert ingest_run.run(spark, job) == 0
    count_up(bootstrap, topic, 10, first=50)
    assert ingest_run.run(spark, job) == 0
    assert landed(spark, job) == list(range(60))


def test_where_more_came_the_job_is_refused_and_a_new_checkpoint_loses_nothing(
    spark: SparkSession, bootstrap: str, topic: str, job: IngestOptions, tmp_path: Path
) -> None:
    count_up(bootstrap, topic, 10, first=50)
    for _ in range(2):  # started again it is refused again
        with pytest.raises(CommandError, match=f"{topic}-0 to 59 .there: 49.* checkpoint went back"):
            ingest_run.run(spark, job)
        assert landed(spark, job) == list(range(50))
    ends = tables.functions("delta").commits(job.table)[-1].offsets
    start = Place(offsets={topic: {"0": ends[topic]["0"][1] + 1}})
    anew = replace(job.stream, checkpoint=f"{tmp_path}/anew")
    assert ingest_run.run(spark, replace(job, input=replace(job.input, start=start), stream=anew)) == 0
    assert landed(spark, job) == list(range(60))
