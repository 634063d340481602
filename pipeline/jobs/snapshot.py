"""``ottla spark snapshot``: a compacted topic as a table of the latest record of each key."""

from dataclasses import dataclass
from typing import Any

import click

from ottla.cli.output import bootstrap_option
from ottla.pipeline.jobs.launch import launch
from ottla.pipeline.jobs.places import LATEST, Place, place_of
from ottla.pipeline.jobs.words import SessionWords, pairs, session_words


@dataclass(frozen=True)
class SnapshotOptions:
    session: SessionWords
    bootstrap: str
    topic: str
    until: Place
    table: str
    format: str
    since: str | None
    source: str
    more: dict[str, str]


@click.command()
@bootstrap_option
@click.option("--topic", required=True, help="The topic; one that is compacted, mostly.")
@click.option(
    "--table",
    required=True,
    metavar="PATH",
    help="Where to write. What is there gives way to the new snapshot, in one commit.",
)
@click.option("--format", type=click.Choice(["delta", "parquet"]), default="delta", show_default=True)
@click.option(
    "--until",
    default=LATEST,
    show_default=True,
    metavar="PLACE",
    help='Where it ends: latest, offsets {"t":{"0":5}}, or a time. The snapshot says which offsets that were.',
)
@click.option(
    "--since",
    metavar="PATH",
    help="Begin with an earlier snapshot (often --table itself), and read only what came after it.",
)
@click.option(
    "--source",
    type=click.Choice(["ottla", "jvm"]),
    default="ottla",
    show_default=True,
    help="jvm: Spark's own Kafka connector.",
)
@click.option("--option", "more", multiple=True, metavar="NAME=VALUE", help="An option of the source; again for more.")
@session_words
def snapshot(**words: Any) -> None:
    """Make a table of the latest record of each key of a topic, at fixed end offsets.

    A key whose latest record has no value (a tombstone) is not in it. The end offsets are kept with the table's commit, and the same
    offsets give the same rows.
    """
    words["until"] = place_of(words["until"], "--until")
    words["more"] = pairs(words["more"], "--option")
    launch("snapshot", "ottla.pipeline.jobs.snapshot_run:run", SnapshotOptions(**words))
