"""``ottla transactions``: list and describe transactional ids, and end what their producers left open."""

import click

from ottla.cli.output import AnyCase, bootstrap_option, output_option, show

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""As brokers name them."""


@click.group()
def transactions() -> None:
    """List and describe transactions, and abort those that hang."""


@transactions.command("list")
@bootstrap_option
@click.option(
    "--state",
    "states",
    type=AnyCase(STATES),
    multiple=True,
    help="Only those in this state; again for more.",
)
@click.option("--longer-than", help="Only those that have been open for longer: 90m, 2h, PT1H30M.")
@click.option("--id-pattern", help="Only ids that match this regular expression.")
@output_option
def list_command(
    bootstrap: str, states: tuple[str, ...], longer_than: str | None, id_pattern: str | None, output: str
) -> None:
    """List the transactional ids, and what their transactions are at."""
    from ottla.cli.transaction_requests import transaction_rows

    rows = transaction_rows(bootstrap, states, longer_than, id_pattern)
    show(rows, ["transactional id", "state", "producer id", "coordinator"], output)


@transactions.command()
@click.argument("ids", nargs=-1, required=True)
@bootstrap_option
@output_option
def describe(ids: tuple[str, ...], bootstrap: str, output: str) -> None:
    """Show the transactions of the transactional IDS: for how long they have been open, and what they wrote to."""
    from ottla.cli.durations import words
    from ottla.cli.transaction_requests import describe

    rows = [describe(bootstrap, each) for each in ids]
    if output == "table":
        rows = [
            {**row, "open for": words(row["open seconds"]) if row["open seconds"] is not None else None} for row in rows
        ]
    columns = [
        "transactional id",
        "state",
        "open for",
        "timeout ms",
        "producer id",
        "epoch",
        "coordinator",
        "partitions",
    ]
    show(rows, columns, output)


@transactions.command()
@click.argument("transactional_id", required=False)
@bootstrap_option
@click.option("--topic", help="With --partition and --start-offset: a transaction that no coordinator knows any more.")
@click.option("--partition", type=click.IntRange(0), help="The partition whose last stable offset it holds back.")
@click.option("--start-offset", type=click.IntRange(0), help="Where the transaction begins in it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@output_option
def abort(
    transactional_id: str | None,
    bootstrap: str,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    dry_run: bool,
    output: str,
) -> None:
    """Abort the open transaction of TRANSACTIONAL_ID, or the one that hangs in a partition.

    By id: its producer is fenced, and its coordinator writes the markers. In a partition: a marker is written there; what wrote there
    may be found by `ottla producers`.
    """
    from ottla.cli.transaction_requests import abort, abort_hanging

    hanging = [each for each in (topic, partition, start_offset) if each is not None]
    if bool(transactional_id) == bool(hanging) or len(hanging) not in (0, 3):
        raise click.UsageError("write TRANSACTIONAL_ID, or --topic, --partition and --start-offset")
    if transactional_id:
        row = abort(bootstrap, transactional_id, dry_run=dry_run)
    else:
        assert topic is not None
        assert partition is not None
        assert start_offset is not None
        row = abort_hanging(bootstrap, topic, partition, start_offset, dry_run=dry_run)
    show([row], row, output)
