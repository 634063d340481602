"""``ottla storage``: format a node's directories, as Kafka's kafka-storage does."""

from pathlib import Path

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import output_option, show


@click.group()
def storage() -> None:
    """Format and inspect a node's directories."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster."""
    from ottla.cli.formatting import new_cluster_id

    click.echo(new_cluster_id())


@storage.command("format")
@click.option(
    "--config", "-c", "properties", type=click.Path(path_type=Path), required=True, help="The node's server.properties."
)
@click.option(
    "--cluster-id",
    "-t",
    required=True,
    help="The cluster's id, from `ottla storage random-uuid`; the same on every node.",
)
@click.option("--ignore-formatted", "-g", is_flag=True, help="Leave formatted directories as they are.")
@click.option("--standalone", "-s", is_flag=True, help="This controller is the quorum's first and only voter.")
@click.option(
    "--no-initial-controllers", "-N", is_flag=True, help="This controller joins a quorum that there is already."
)
@click.option(
    "--initial-controllers",
    "-I",
    "initial",
    metavar="ID@HOST:PORT:DIRECTORY-ID,...",
    help="The quorum's first voters; directory ids from `ottla storage random-uuid`; the same on each of them.",
)
def format_command(
    properties: Path,
    cluster_id: str,
    ignore_formatted: bool,
    standalone: bool,
    no_initial_controllers: bool,
    initial: str | None,
) -> None:
    """Write meta.properties into each of the node's log directories.

    A controller without controller.quorum.voters needs to know the quorum's first voters: give one of -s, -I and -N.
    """
    from ottla.cli.formatting import format_directories
    from ottla.cli.initial_controllers import InitialControllers
    from ottla.runtime.identifiers import id_from_text

    try:
        id_from_text(cluster_id)
    except ValueError as error:
        raise CommandError(f"--cluster-id: {error}; take one from `ottla storage random-uuid`") from error
    controllers = InitialControllers(standalone, no_initial_controllers, initial)
    for directory in format_directories(
        properties, cluster_id, ignore_formatted=ignore_formatted, controllers=controllers
    ):
        click.echo(f"formatted {directory}")


@storage.command("info")
@click.option(
    "--config", "-c", "properties", type=click.Path(path_type=Path), required=True, help="The node's server.properties."
)
@output_option
def info(properties: Path, output: str) -> None:
    """Show what each log directory says of itself."""
    from ottla.cli.formatting import directory_rows

    rows = directory_rows(properties)
    show(rows, ["directory", "formatted", "cluster.id", "node.id", "directory.id"], output)
