"""Tables that jobs write: their formats, and what is done to them beside the writing."""

import importlib
from typing import TYPE_CHECKING, Any

import click

from ottla.pipeline.jobs.compacting import Compacting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA, PARQUET = "delta", "parquet"
FORMATS = {DELTA: "ottla-delta", PARQUET: "ottla-parquet"}

format_option = click.option(
    "--format", "table_format", type=click.Choice(list(FORMATS)), default=DELTA, show_default=True, help="Of the table."
)


def functions(table_format: str) -> Any:
    """commits, compact, last_version, committed_files, read: the module that has them for the format."""
    return importlib.import_module(f"ottla.pipeline.sinks.{table_format}")


def compacting(table: str, table_format: str, target_bytes: int, every: int) -> Compacting:
    return Compacting(table, target_bytes, every, functions(table_format).compact)


def register(spark: "SparkSession") -> None:
    """The formats, for a session that reads by another source than ours."""
    from ottla.pipeline.sinks.delta import DeltaSink
    from ottla.pipeline.sinks.parquet import ParquetSink

    for sink in (DeltaSink, ParquetSink):
        spark.dataSource.register(sink)


def needed(table_format: str) -> tuple[str, ...]:
    """What the driver has to have installed."""
    return ("deltalake",) if table_format == DELTA else ()


def default_checkpoint(table: str) -> str:
    """Beside the table, never in it: who empties the table empties the checkpoint knowingly."""
    return f"{table.rstrip('/')}.checkpoint"
