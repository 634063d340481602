"""Committed files as a Spark table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.pipeline.sinks.schemas import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_files(spark: "SparkSession", path: str, files: Sequence[str], schema: Schema) -> "DataFrame":
    from pyspark.sql.types import StructType

    kinds = StructType.fromJson(schema)
    if not files:
        return spark.createDataFrame([], kinds)
    found = spark.read.schema(kinds).option("basePath", path).parquet(*files)
    return found.select(*kinds.fieldNames())  # Spark puts partition columns last
