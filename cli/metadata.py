"""``ottla metadata``: the metadata log as history; what the cluster looked like then, what changed since, and why."""

import click

from ottla.cli.metadata_options import LATEST, Source, source_options
from ottla.cli.output import output_option


@click.group()
def metadata() -> None:
    """Walk the history of the cluster's metadata, of a running cluster or of a stopped node's directory."""


@metadata.command()
@source_options
@click.option("--from", "first", type=click.IntRange(0), help="Begin with the batch that holds this offset.")
@click.option("--to", "last", type=click.IntRange(0), help="End with the batch that holds this offset.")
@output_option
def dump(source: Source, first: int | None, last: int | None, output: str) -> None:
    """Print every batch with its cause and its records (json: a line a batch)."""
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} --to {last}: that ends before it begins")
    from ottla.cli import metadata_history

    metadata_history.dump(source, first, last, output)


@metadata.command()
@click.argument("moment")
@source_options
@output_option
def at(moment: str, source: Source, output: str) -> None:
    """Show the cluster as it was at MOMENT: an offset, a time (2026-11-21T20:15:00, UTC) or `latest`."""
    from ottla.cli import metadata_history

    metadata_history.at(source, moment, output)


@metadata.command()
@click.argument("before")
@click.argument("after")
@source_options
@output_option
def diff(before: str, after: str, source: Source, output: str) -> None:
    """Show what differs between the moments BEFORE and AFTER (as for `at`)."""
    from ottla.cli import metadata_history

    metadata_history.diff(source, before, after, output)


@metadata.command()
@click.argument("partition", metavar="TOPIC/PARTITION")
@source_options
@output_option
def blame(partition: str, source: Source, output: str) -> None:
    """Tell a partition's whole life: what happened to it, when, and which request or fencing caused it."""
    from ottla.cli import metadata_history

    metadata_history.blame(source, partition, output)


@metadata.command(context_settings={"ignore_unknown_options": True})
@source_options
@click.option("--at", "moment", default=LATEST, show_default=True, help="The moment to look at (as for `at`).")
@click.argument("words", nargs=-1, metavar="[COMMAND...]")
def shell(source: Source, moment: str, words: tuple[str, ...]) -> None:
    """Walk the image as a tree: ls, cd, cat, tree, find, at, help, exit.

    With a COMMAND it is carried out and the shell ends; otherwise commands are read from standard input.
    """
    from ottla.cli import metadata_history

    metadata_history.shell(source, moment, words)
