"""``ottla brokers``: who is there, what lies on them, and how one goes."""

from pathlib import Path

import click

from ottla.cli.output import bootstrap_option, output_option, show
from ottla.cli.reassign import throttle_option

broker_argument = click.argument("broker_id", type=click.IntRange(0), metavar="ID")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what it comes to.")


@click.group()
def brokers() -> None:
    """List and describe brokers, drain them, take them out for good."""


@brokers.command("list")
@bootstrap_option
@output_option
def list_command(bootstrap: str, output: str) -> None:
    """List the brokers, those that are away too."""
    from ottla.cli.broker_requests import broker_rows

    columns = ["broker", "address", "rack", "state", "leads", "replicas", "out of sync", "moving in", "bytes"]
    show(broker_rows(bootstrap), columns, output)


@brokers.command()
@broker_argument
@bootstrap_option
@output_option
def describe(broker_id: int, bootstrap: str, output: str) -> None:
    """Show the partitions that broker ID has."""
    from ottla.cli.broker_requests import replica_rows

    columns = ["topic", "partition", "role", "in sync", "bytes", "directory", "moves"]
    show(replica_rows(bootstrap, broker_id), columns, output)


@brokers.command()
@broker_argument
@bootstrap_option
@click.option(
    "--back",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the way back is written. [drain-ID.back.json]",
)
@dry_run_option
@yes_option
def drain(broker_id: int, bootstrap: str, back: Path | None, dry_run: bool, yes: bool) -> None:
    """Have other brokers lead what broker ID leads; its replicas stay. For as long as it takes: leaders do not go back by themselves."""
    from ottla.cli.broker_leaving import drain as work

    work(bootstrap, broker_id, back or Path(f"drain-{broker_id}.back.json"), dry_run=dry_run, yes=yes)


@brokers.command()
@broker_argument
@bootstrap_option
@throttle_option
@dry_run_option
@yes_option
def decommission(broker_id: int, bootstrap: str, throttle: int | None, dry_run: bool, yes: bool) -> None:
    """Move everything off broker ID, wait until it is stopped, and unregister it. Interrupted, it is called again."""
    from ottla.cli.broker_leaving import decommission as work

    work(bootstrap, broker_id, throttle, dry_run=dry_run, yes=yes)
