"""``ottla log``: what lies in a node's files, decoded; whether they are sound."""

from pathlib import Path

import click


@click.group("log")
def log() -> None:
    """Decode and verify a node's files."""


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--records", "-r", is_flag=True, help="Also every record of every batch.")
@click.option(
    "--verify",
    "check",
    is_flag=True,
    help="Check CRCs, offsets, indexes and epochs instead of printing; exit 1 on a fault.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json: a line a row.",
)
def dump(paths: tuple[Path, ...], records: bool, check: bool, output: str) -> None:
    """Print what the files or partition directories PATHS hold, Ottla's or Apache Kafka's.

    The node that owns them should be stopped.
    """
    from ottla.cli.log_print import print_all, verify_all  # the decoders of all formats: only who dumps pays for them

    if check:
        verify_all(paths, output)
    else:
        print_all(paths, output, records=records)
