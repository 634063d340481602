"""Whose directories these are: a node starts only on directories that were formatted for it."""

import logging
from typing import NamedTuple

from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.names import METADATA_PARTITION
from ottla.quorum.initial_voters import read_initial_voters
from ottla.quorum.raft.voters import VoterSet
from ottla.runtime.disk import Disk
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.server import ServerConfig

logger = logging.getLogger(__name__)

METADATA_DIRECTORY = str(METADATA_PARTITION)


class NodeIdentity(NamedTuple):
    """What meta.properties of all directories agree on, the id of each readable directory, and the voters it was formatted
    with, if any."""

    cluster_id: str
    metadata_directory_id: bytes
    directory_ids: dict[str, bytes]
    initial_voters: VoterSet | None = None


def metadata_directory(config: ServerConfig) -> str:
    return f"{config.metadata_log_dir}/{METADATA_DIRECTORY}"


def read_identity(disk: Disk, config: ServerConfig) -> NodeIdentity:
    """Raises SettingError (one line) when a directory is not formatted, not writable, or belongs to somebody else."""
    found: dict[str, MetaProperties] = {}
    for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
        try:
            meta = MetaProperties.read(disk, path) if disk.is_directory(path) else None
        except OSError as error:
            if path == config.metadata_log_dir:
                raise SettingError(f"{path} cannot be read: {error}") from error
            logger.error("log directory %s cannot be read: %s", path, error)
            continue
        if meta is None:
            advice = "mount its disk, or run ottla storage format -t CLUSTER_ID -c server.properties"
            raise SettingError(f"{path} is not formatted: {advice}")
        if meta.node_id != config.node_id:
            raise SettingError(
                f"{path} belongs to node {meta.node_id}, this is node {config.node_id}: give another log.dirs"
            )
        found[path] = meta
    first = found[config.metadata_log_dir]
    for path, meta in found.items():
        if meta.cluster_id != first.cluster_id:
            raise SettingError(
                f"{path} belongs to cluster {meta.cluster_id}, {config.metadata_log_dir} to {first.cluster_id}"
            )
    ids = {path: meta.directory_id for path, meta in found.items()}
    if len(dict.fromkeys(ids.values())) != len(ids):
        raise SettingError(f"two of {', '.join(ids)} have the same directory.id: one is a copy; format it anew")
    initial_voters = read_initial_voters(disk, config.metadata_log_dir)
    return NodeIdentity(first.cluster_id, first.directory_id, ids, initial_voters)
