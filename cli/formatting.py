"""Formatting of a node's directories, and what they say of themselves."""

from pathlib import Path
from random import SystemRandom

from ottla.cli.failures import CommandError
from ottla.cli.initial_controllers import InitialControllers
from ottla.cli.output import Row
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.initial_voters import write_initial_voters
from ottla.runtime.identifiers import id_to_text, random_id
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


def directory_rows(properties: Path) -> list[Row]:
    """A row a log directory. Raises SettingError, CheckpointError."""
    config = ServerConfig.load(properties)
    disk = RealDisk()
    rows: list[Row] = []
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
    return rows
