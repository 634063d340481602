"""Tables that jobs write: their formats, and what is done to them beside the writing."""

import importlib
from typing import Any

import click

from ottla.pipeline.jobs.compacting import Compacting

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


def needed(table_format: str) -> tuple[str, ...]:
    """What the driver has to have installed."""
    return ("deltalake",) if table_format == DELTA else ()


def default_checkpoint(table: str) -> str:
    """Beside the table, never in it: who empties the table empties the checkpoint knowingly."""
    return f"{table.rstrip('/')}.checkpoint"
