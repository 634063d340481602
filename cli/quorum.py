"""``ottla quorum``: the metadata quorum as its leader sees it."""

from pathlib import Path

import click

from ottla.cli.output import output_option, show
from ottla.cli.where import Where, where_options

timeout_option = click.option("--timeout-ms", type=click.IntRange(1), default=30_000, show_default=True)


@click.group()
def quorum() -> None:
    """Show and change the metadata quorum."""


@quorum.command()
@where_options
@click.option("--status", "what", flag_value="status", help="Leader, epoch, high watermark and lag.")
@click.option("--replication", "what", flag_value="replication", default="replication", help="Each voter and observer.")
@output_option
def describe(where: Where, what: str, output: str) -> None:
    """Show who leads the quorum and how far each replica is."""
    from ottla.cli import quorum_requests

    if what == "status":
        columns = ["leader", "epoch", "high watermark", "max lag", "max lag ms", "voters", "observers", "kraft.version"]
        show([quorum_requests.status_row(where)], columns, output)
    else:
        columns = ["node", "directory id", "endpoint", "role", "log end offset", "lag", "behind ms"]
        show(quorum_requests.replica_rows(where), columns, output)


@quorum.command("add-controller")
@where_options
@click.option(
    "--config",
    "-c",
    "properties",
    type=click.Path(path_type=Path),
    help="The new controller's server.properties, on its own machine: says all of the following.",
)
@click.option("--controller-id", "node_id", type=click.IntRange(0), help="Its node.id.")
@click.option(
    "--controller-directory-id", "directory", help="directory.id in the meta.properties of its metadata.log.dir."
)
@click.option(
    "--controller-endpoint", "endpoint", metavar="HOST:PORT", help="Where its controller listener is reached."
)
@click.option(
    "--listener-name", default="CONTROLLER", show_default=True, help="That listener's name, with the endpoint."
)
@timeout_option
@output_option
def add_controller(
    where: Where,
    properties: Path | None,
    node_id: int | None,
    directory: str | None,
    endpoint: str | None,
    listener_name: str,
    timeout_ms: int,
    output: str,
) -> None:
    """Let a controller vote that follows the metadata log already."""
    from ottla.cli.quorum_requests import add, described_controller, new_controller

    if properties is not None:
        if not (node_id is None and directory is None and endpoint is None):
            raise click.UsageError("--config says what the --controller options say: give the one or the others")
        node = described_controller(properties)
    elif node_id is None or directory is None or endpoint is None:
        raise click.UsageError("give --config, or --controller-id, --controller-directory-id and --controller-endpoint")
    else:
        node = new_controller(node_id, directory, listener_name, endpoint)
    row = add(where, node, timeout_ms)
    show([row], row, output)


@quorum.command("remove-controller")
@where_options
@click.option("--controller-id", "node_id", type=click.IntRange(0), required=True, help="The voter's node.id.")
@click.option(
    "--controller-directory-id",
    "directory",
    required=True,
    help="Its directory id, as `ottla quorum describe` shows it (- when it shows none).",
)
@timeout_option
@output_option
def remove_controller(where: Where, node_id: int, directory: str, timeout_ms: int, output: str) -> None:
    """Take a controller's vote away, be it the leader; then it may be stopped."""
    from ottla.cli.quorum_requests import directory_id, remove

    row = remove(where, node_id, None if directory == "-" else directory_id(directory), timeout_ms)
    show([row], row, output)


@quorum.command()
@click.option(
    "--config", "-c", "properties", type=click.Path(path_type=Path), required=True, help="The node's server.properties."
)
@click.option("--execute", is_flag=True, help="Go on with this node as the only voter; without, only look.")
@output_option
def recover(properties: Path, execute: bool, output: str) -> None:
    """A way out when most voters are lost for good: look at a stopped node's metadata, then go on with it alone.

    Metadata that only the lost voters had is lost. docs/quorum.md has the whole walk.
    """
    from ottla.cli import quorum_recovery

    if not execute:
        show([quorum_recovery.describe(properties)], quorum_recovery.COLUMNS, output)
        click.echo(quorum_recovery.CHOICE, err=True)
        return
    row = quorum_recovery.execute(properties)
    show([row], (*quorum_recovery.COLUMNS, "no longer voters"), output)
    click.echo(
        "Start this node; it is the whole quorum. Then format the others anew (-N), start and add them.", err=True
    )
