"""Topics become tables, and tables topics, on Spark: ``from ottla.pipeline import register; register(spark)``."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCES = (
    ("ottla.pipeline.source.datasource", "OttlaSource"),
    ("ottla.pipeline.segments.source", "SegmentsSource"),
    ("ottla.pipeline.sinks.delta", "DeltaSink"),
    ("ottla.pipeline.sinks.parquet", "ParquetSink"),
)


def register(spark: "SparkSession") -> None:
    """Makes the formats known to a session. Twice does no harm."""
    for module, name in _SOURCES:
        spark.dataSource.register(getattr(importlib.import_module(module), name))
