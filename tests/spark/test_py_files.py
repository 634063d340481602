"""What spark-submit's --py-files brought along."""

from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from ottla.pipeline import register


def test_the_driver_of_a_stream_finds_files_where_spark_looks_for_them(spark: SparkSession) -> None:
    register(spark)
    register(spark)
    root = Path(SparkFiles.getRootDirectory())
    (root / "brought.py").write_text("")
    assert (root / "streaming_job" / "brought.py").exists()
