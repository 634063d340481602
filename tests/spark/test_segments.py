"""Log directories as tables, and audited by Spark's tasks."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.pipeline.arrow.encoder import encode
from ottla.pipeline.jobs.audit import AuditOptions
from ottla.pipeline.jobs.audit_run import run_on_spark
from ottla.pipeline.jobs.words import SessionWords
from ottla.pipeline.segments.source import SegmentsSource

RECORDS = 50_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of a topic, a segment each."""
    home = tmp_path_factory.mktemp("logs")
    for partition in range(2):
        directory = home / f"fleet-{partition}"
        directory.mkdir()
        values = pa.array([b"%d of partition %d" % (number, partition) for number in range(RECORDS)])
        batches = encode(None, values, timestamps=1_700_000_000_000, compression="lz4", base_offset=0)
        (directory / f"{0:020d}.log").write_bytes(b"".join(batch.data for batch in batches))
    return home


def test_a_directory_is_a_table(spark: SparkSession, home: Path) -> None:
    spark.dataSource.register(SegmentsSource)

    rows = spark.read.format("ottla-segments").option("includeHeaders", "true").load(str(home))

    counts = rows.groupBy("topic", "partition").agg({"offset": "max", "value": "count"}).orderBy("partition").collect()
    assert [tuple(row) for row in counts] == [("fleet", 0, RECORDS - 1, RECORDS), ("fleet", 1, RECORDS - 1, RECORDS)]
    first = rows.where("partition = 1 and offset = 7").collect()[0]
    assert (bytes(first.value), first.key, first.headers) == (b"7 of partition 1", None, None)
    assert first.timestamp.timestamp() == 1_700_000_000


def test_a_damaged_batch_fails_the_query_by_its_place(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    spark.dataSource.register(SegmentsSource)
    directory = tmp_path / "fleet-0"
    directory.mkdir()
    data = bytearray((home / "fleet-0" / f"{0:020d}.log").read_bytes())
    data[80] ^= 1
    (directory / f"{0:020d}.log").write_bytes(data)
    rows = spark.read.format("ottla-segments").option("columns", "offset")

    with pytest.raises(PySparkException, match=r"fleet-0/00000000000000000000\.log at byte 0, offset 0: CRC"):
        rows.load(str(tmp_path)).count()

    assert rows.option("failOnDataLoss", "false").load(str(tmp_path)).count() < RECORDS


def test_tasks_audit_directories(
    spark: SparkSession, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "replicas.parquet"
    options = AuditOptions(SessionWords(), (str(home),), None, 1, True, None, str(file))

    assert run_on_spark(spark, options) == 0

    assert pq.read_table(file)["records"].to_pylist() == [RECORDS] * 2
    assert "0 faults and 0 notes in 2 replicas" in capsys.readouterr().err
