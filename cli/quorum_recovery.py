"""What `ottla quorum recover` does with the files of a node that does not run."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ottla.broker.directories import NodeIdentity, metadata_directory, read_identity
from ottla.broker.metadata_storage import open_metadata_log, open_quorum_store
from ottla.broker.process import FAILURES
from ottla.broker.server import quorum_settings
from ottla.cli.failures import CommandError
from ottla.cli.output import Row
from ottla.log.directories.roots import lock
from ottla.log.log import Log
from ottla.quorum.begun_mark import BegunMark
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.log_start import align_log
from ottla.quorum.raft.voters import Voter
from ottla.quorum.recovery import Survivor, become_only_voter, survey
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.host import Host
from ottla.runtime.identifiers import id_to_text
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.settings.server import ServerConfig

COLUMNS = ("node", "directory id", "last epoch", "end offset", "last written", "voters")
CHOICE = """\
Of the nodes that are left take the one with the highest last epoch, and of those the highest end offset: run this on each of them.
What only the lost ones had of the metadata log is lost: topics, settings and leaders as they were last; records of topics are not in it.
Never start a lost voter again with its old metadata directory: it would be a second cluster of the same name.
Nothing was changed. To go on with this node alone: the same again with --execute."""


class Opened(NamedTuple):
    """A stopped node's metadata, locked against its start."""

    settings: QuorumSettings
    host: Host
    log: Log
    store: KeyValueStore
    snapshots: SnapshotFiles
    mark: SyncedMark
    elections: ElectionStore

    def survey(self) -> Survivor:
        return survey(self.log, self.snapshots, self.elections, self.settings.voter_set())


@contextmanager
def opened(config: ServerConfig, host: Host) -> Iterator[Opened]:
    """As the node's start would open it; what a crash left undone is done. Raises CommandError, SettingError, LogDirectoryError."""
    if not config.is_controller:
        raise CommandError("the settings are no controller's: add controller to process.roles, and its listener")
    identity = read_identity(host.disk, config)
    directory = metadata_directory(config)
    if not host.disk.is_directory(directory):
        raise CommandError(f"{directory} is not there: this node has nothing of the quorum")
    held = lock(host.disk, directory)
    try:
        with _store(config, host, identity, directory) as store, _log(config, host, directory, store) as log:
            snapshots, mark = SnapshotFiles(host.disk, directory), SyncedMark(store)
            align_log(log, snapshots, mark)
            elections = ElectionStore(store, identity.cluster_id, config.node_id)
            yield Opened(quorum_settings(config, identity), host, log, store, snapshots, mark, elections)
    except FAILURES as error:
        raise CommandError(str(error)) from error
    finally:
        held.release()


@contextmanager
def _store(config: ServerConfig, host: Host, identity: NodeIdentity, directory: str) -> Iterator[KeyValueStore]:
    BegunMark(host.disk, config.metadata_log_dir, identity.metadata_directory_id).require_promises(directory)
    store = open_quorum_store(host.open_store, directory)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _log(config: ServerConfig, host: Host, directory: str, store: KeyValueStore) -> Iterator[Log]:
    log = open_metadata_log(host, directory, config, store)
    try:
        yield log
    finally:
        log.close()


def describe(properties: Path) -> Row:
    """What the node has of the metadata."""
    return describe_node(ServerConfig.load(properties), Host.real())


def describe_node(config: ServerConfig, host: Host) -> Row:
    with opened(config, host) as node:
        return _row(node.settings, node.survey())


def execute(properties: Path) -> Row:
    """Makes the node the only voter. Raises CommandError when it has nothing to go on with."""
    return execute_node(ServerConfig.load(properties), Host.real())


def execute_node(config: ServerConfig, host: Host) -> Row:
    with opened(config, host) as node:
        found, settings = node.survey(), node.settings
        if found.end_offset == 0:
            raise CommandError(f"node {settings.node_id} has an empty metadata log: there is nothing to go on with")
        if not settings.own_endpoint.host:
            raise CommandError("the node's controller listener has no address that others could reach: set listeners")
        own = Voter(settings.key, settings.own_endpoint)
        now_ms = node.host.clock.wall_ms()
        epoch = become_only_voter(node.log, node.elections, node.mark, found, own, now_ms)
        lost = [each for each in found.voters.ids() if each != settings.node_id]
        return {**_row(settings, node.survey()), "epoch": epoch, "no longer voters": lost}


def _row(settings: QuorumSettings, found: Survivor) -> Row:
    at = datetime.fromtimestamp(found.last_ms / 1000, UTC) if found.last_ms >= 0 else None
    return {
        "node": settings.node_id,
        "directory id": id_to_text(settings.directory_id or bytes(16)),
        "last epoch": found.last_epoch,
        "start offset": found.start_offset,
        "end offset": found.end_offset,
        "last written": at and at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "promised epoch": found.promised_epoch,
        "voters": list(found.voters.ids()),
    }
