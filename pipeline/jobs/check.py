"""``ottla spark check``: what a topic or a table holds of a fleet. Needs no Spark."""

from dataclasses import dataclass
from typing import Any

import click

from ottla.cli.output import bootstrap_option, output_option
from ottla.pipeline.jobs.fleet_words import KINDS, fleet_numbers, fleet_words


@dataclass(frozen=True)
class CheckOptions:
    fleet: dict[str, Any]
    kinds: tuple[str, ...]
    prefix: str
    bootstrap: str
    table: str | None
    output: str


@click.command()
@bootstrap_option
@fleet_words
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Only this; again for more.  [default: all three; of a table V]",
)
@click.option("--table", metavar="PATH", help="A table instead of topics: Delta, or Parquet with or without manifests.")
@output_option
def check(**words: Any) -> None:
    """Judge what became of a fleet's records: lost, doubled, reordered, or none of its.

    The words that `ottla spark generate` was given say which records there should be. Exits with 1 if it is not as it should be.
    """
    from ottla.pipeline.jobs import missing

    kinds = words.pop("kinds") or (KINDS[:1] if words["table"] else KINDS)
    options = CheckOptions(fleet=fleet_numbers(words), kinds=kinds, **words)
    if options.table and len(kinds) > 1:
        raise click.UsageError("a table holds one --kind")
    missing.require("numpy", "pyarrow")
    from ottla.pipeline.jobs.check_run import run

    raise click.exceptions.Exit(run(options))
