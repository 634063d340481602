"""``ottla spark replay``: a table's rows to a topic."""

from dataclasses import dataclass
from typing import Any

import click

from ottla.cli.output import bootstrap_option
from ottla.pipeline.jobs.launch import launch
from ottla.pipeline.jobs.numbers import FiniteRange
from ottla.pipeline.jobs.places import EARLIEST, LATEST, Place, place_of
from ottla.pipeline.jobs.words import SessionWords, session_words


@dataclass(frozen=True)
class ReplayOptions:
    session: SessionWords
    bootstrap: str
    table: str
    format: str
    topic: str
    where: str | None
    start: Place
    until: Place
    order_by: str | None
    preserve_partition: bool
    preserve_timestamps: bool
    rate: float | None
    chunk: int
    compression: str
    checkpoint: str | None
    dry_run: bool


@click.command()
@bootstrap_option
@click.option(
    "--table",
    required=True,
    metavar="PATH",
    help="What to send: a table with a column value, and key, headers if there are any.",
)
@click.option(
    "--format",
    default="auto",
    show_default=True,
    help="auto: Delta, or Parquet with or without manifests; or any format that Spark reads.",
)
@click.option("--topic", required=True, help="Where to.")
@click.option(
    "--where", metavar="SQL", help="Only rows for which this holds: \"topic = 'orders' AND key IS NOT NULL\"."
)
@click.option(
    "--from",
    "start",
    default=EARLIEST,
    show_default=True,
    metavar="PLACE",
    help='Only rows from there on: a time (column timestamp), or offsets {"orders":{"0":5}}.',
)
@click.option("--until", default=LATEST, show_default=True, metavar="PLACE", help="Only rows before, likewise.")
@click.option(
    "--order-by",
    metavar="COLUMN",
    help="Rows of a key in the order of this column.  [default: rows of a partition in the order of their offsets]",
)
@click.option(
    "--preserve-partition", is_flag=True, help="Each row to the partition it came from.  [default: by its key]"
)
@click.option(
    "--preserve-timestamps", is_flag=True, help="Records have the rows' times.  [default: the time of the replay]"
)
@click.option("--rate", type=FiniteRange(0, min_open=True), help="Rows a second.  [default: as fast as it goes]")
@click.option(
    "--chunk",
    type=click.IntRange(1),
    default=500_000,
    show_default=True,
    help="Rows that become visible together, about; --rate makes them fewer.",
)
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="lz4", show_default=True
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Where it remembers how far it is, so that it may be started again.  [default: nowhere: each start sends everything]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be sent; send nothing.")
@session_words
def replay(**words: Any) -> None:
    """Send a table's rows to a topic, in order, each once.

    Rows go in chunks, one transaction a task and chunk; readers with isolation.level=read_committed see each row once, whatever
    is killed meanwhile. With --checkpoint a replay that was stopped goes on where it was.
    """
    words["start"], words["until"] = place_of(words["start"], "--from"), place_of(words["until"], "--until")
    launch("replay", "ottla.pipeline.jobs.replay_run:run", ReplayOptions(**words))
