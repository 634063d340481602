"""``ottla storage``: format a node's directories, as Kafka's kafka-storage does."""

from pathlib import Path
from random import SystemRandom

import click

from ottla.cli.failures import CommandError
from ottla.cli.initial_controllers import InitialControllers
from ottla.cli.output import output_option, show
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.initial_voters import write_initial_voters
from ottla.runtime.identifiers import id_from_text, id_to_text, random_id
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.server import ServerConfig


def new_cluster_id() -> str:
    return id_to_text(random_id(SystemRandom()))


def format_directories(
    properties: Path, cluster_id: str, *, ignore_formatted: bool, controllers: "InitialControllers | None" = None
) -> list[str]:
    """Writes meta.properties into each directory that has none; returns those formatted now. ``controllers``: what the
    quorum's first voters are to be, on a controller without controller.quorum.voters.

    Raises CommandError when a directory belongs to another cluster or node, or is formatted already and that is not ignored.
    """
    config = ServerConfig.load(properties)
    disk = RealDisk()
    voters = (controllers or InitialControllers()).voters(config)
    own = None if voters is None else voters.get(config.node_id)
    done = []
    for directory in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
        found = MetaProperties.read(disk, directory) if disk.exists(f"{directory}/meta.properties") else None
        if found is None:
            disk.make_directories(directory)
            directory_id = random_id(SystemRandom())
            if directory == config.metadata_log_dir and own is not None and voters is not None:
                directory_id = own.key.directory_id or directory_id
                write_initial_voters(disk, directory, voters)
            MetaProperties(cluster_id, config.node_id, directory_id).write(disk, directory)
            done.append(directory)
        elif found.cluster_id != cluster_id or found.node_id != config.node_id:
            raise CommandError(
                f"{directory} belongs to node {found.node_id} of cluster {found.cluster_id}, not to node {config.node_id} "
                f"of cluster {cluster_id}: give another log.dirs"
            )
        elif not ignore_formatted:
            raise CommandError(f"{directory} is formatted already: add --ignore-formatted to leave it as it is")
    return done


@click.group()
def storage() -> None:
    """Format and inspect a node's directories."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster."""
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
    config = ServerConfig.load(properties)
    disk = RealDisk()
    rows = []
    for directory in config.log_dirs:
        formatted = disk.exists(f"{directory}/meta.properties")
        meta = MetaProperties.read(disk, directory) if formatted else None
        rows.append(
            {
                "directory": directory,
                "formatted": formatted,
                "cluster.id": meta.cluster_id if meta else None,
                "node.id": meta.node_id if meta else None,
                "directory.id": id_to_text(meta.directory_id) if meta else None,
            }
        )
    show(rows, ["directory", "formatted", "cluster.id", "node.id", "directory.id"], output)
