"""Topics become tables, and tables topics, on Spark: ``from ottla.pipeline import register; register(spark)``."""

import importlib
from contextlib import suppress
from pathlib import Path
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
    _let_streams_find_files()


def _let_streams_find_files() -> None:
    """Spark looks for what --py-files brought in a folder `streaming_job` of the driver's files when it makes a stream's source, and
    puts nothing there: without this such a stream says that there is no module ottla."""
    from pyspark import SparkContext, SparkFiles

    if SparkContext._active_spark_context is not None:  # else there is no driver here to have files
        with suppress(FileExistsError):
            Path(SparkFiles.getRootDirectory(), "streaming_job").symlink_to(".", target_is_directory=True)
