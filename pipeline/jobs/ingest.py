"""``ottla spark ingest``: topics land in a table."""

from dataclasses import dataclass
from typing import Any

import click

from ottla.pipeline.jobs.launch import launch
from ottla.pipeline.jobs.tables import default_checkpoint, format_option, needed
from ottla.pipeline.jobs.values import ValueWords, value_words
from ottla.pipeline.jobs.words import (
    InputWords,
    SessionWords,
    StreamWords,
    input_words,
    session_words,
    stream_words,
)

TARGET_BYTES = 128 << 20
COMPACT_EVERY = 100


@dataclass(frozen=True)
class IngestOptions:
    """What is landed where."""

    input: InputWords
    stream: StreamWords
    session: SessionWords
    value: ValueWords
    table: str
    table_format: str = "delta"
    partition_by: tuple[str, ...] = ("topic", "date")
    dead_letters: str | None = None
    merge_schema: bool = False
    target_bytes: int = TARGET_BYTES
    compact_every: int = COMPACT_EVERY

    @property
    def checkpoint(self) -> str:
        return self.stream.checkpoint or default_checkpoint(self.table)

    @property
    def dead_letter_table(self) -> str | None:
        """Rows that do not parse go somewhere, always."""
        if self.value.format is None:
            return None
        return self.dead_letters or f"{self.table.rstrip('/')}.dead-letters"


@click.command()
@input_words
@click.option("--table", required=True, metavar="DIR", help="Where the table is, or will be: a path or a URI.")
@format_option
@value_words
@click.option(
    "--partition-by",
    default="topic,date",
    show_default=True,
    metavar="A,B",
    help="Columns that the table is laid out by; date is the timestamp's day. Empty: none.",
)
@click.option(
    "--dead-letters",
    metavar="DIR",
    help="A table of the rows whose value does not parse.  [default: TABLE.dead-letters]",
)
@click.option("--merge-schema", is_flag=True, help="Let the table grow columns that the schema has and it has not.")
@click.option(
    "--target-bytes", type=click.IntRange(1), default=TARGET_BYTES, show_default=True, help="Of a file, about."
)
@click.option(
    "--compact-every",
    type=click.IntRange(0),
    default=COMPACT_EVERY,
    show_default=True,
    help="Batches after which small files become large ones, also at the end; 0: never.",
)
@stream_words
@session_words
def ingest(partition_by: str, **words: Any) -> None:
    """Land topics in a table, each record exactly once.

    The table has the columns of Kafka's records (key, value, topic, partition, offset, timestamp, timestampType), date and
    _ingest_batch. With --value-format the value's own columns take the place of value, and rows whose value does not parse go to
    the table of dead letters, with the reason.
    """
    from ottla.pipeline.jobs import missing

    columns = tuple(filter(None, (each.strip() for each in partition_by.split(","))))
    options = IngestOptions(partition_by=columns, **words)
    missing.require(*needed(options.table_format))
    launch("ingest", "ottla.pipeline.jobs.ingest_run:run", options)
