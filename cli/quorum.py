"""``ottla quorum``: the metadata quorum as its leader sees it."""

from pathlib import Path
from typing import NamedTuple

import click

from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.broker.wire.messages.add_raft_voter_request import Listener as WireListener
from ottla.broker.wire.messages.describe_quorum_response import PartitionData as QuorumState
from ottla.broker.wire.messages.describe_quorum_response import ReplicaState
from ottla.broker.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.cli.failures import CommandError
from ottla.cli.output import Row, bootstrap_option, output_option, show
from ottla.cli.topics import refuse
from ottla.cli.voter_change import add_voter, describe_quorum, kraft_version, remove_voter
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.raft.voters import KRAFT_VERSION
from ottla.runtime.identifiers import ZERO_ID, id_from_text, id_to_text
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.endpoints import Endpoint, Listener, parse_endpoint
from ottla.runtime.settings.server import ServerConfig

timeout_option = click.option("--timeout-ms", type=click.IntRange(1), default=30_000, show_default=True)


@click.group()
def quorum() -> None:
    """Show and change the metadata quorum."""


@quorum.command()
@bootstrap_option
@click.option("--status", "what", flag_value="status", help="Leader, epoch, high watermark and lag.")
@click.option("--replication", "what", flag_value="replication", default="replication", help="Each voter and observer.")
@output_option
def describe(bootstrap: str, what: str, output: str) -> None:
    """Show who leads the quorum and how far each replica is."""
    answer = describe_quorum(bootstrap)
    refuse(answer.error_code, "describe", answer.error_message)
    if not answer.topics or not answer.topics[0].partitions:
        raise CommandError("the broker answered nothing about the quorum; ask another one")
    state = answer.topics[0].partitions[0]
    refuse(state.error_code, "describe", state.error_message)
    if what == "status":
        show(
            [{**_status(state), KRAFT_VERSION: kraft_version(bootstrap)}],
            ["leader", "epoch", "high watermark", "max lag", "max lag ms", "voters", "observers", KRAFT_VERSION],
            output,
        )
        return
    leader_end = next((each.log_end_offset for each in state.current_voters if each.replica_id == state.leader_id), 0)
    newest_ms = max((each.last_caught_up_timestamp for each in state.current_voters), default=-1)
    places = {each.node_id: each.listeners for each in answer.nodes}
    voters = [
        _replica(each, "leader" if each.replica_id == state.leader_id else "follower", leader_end, newest_ms)
        for each in state.current_voters
    ]
    observers = [_replica(each, "observer", leader_end, newest_ms) for each in state.observers]
    rows = voters + observers
    for row in rows:
        row["endpoint"] = next((str(Endpoint(each.host, each.port)) for each in places.get(row["node"], [])), None)
    show(rows, ["node", "directory id", "endpoint", "role", "log end offset", "lag", "behind ms"], output)


@quorum.command("add-controller")
@bootstrap_option
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
    bootstrap: str,
    properties: Path | None,
    node_id: int | None,
    directory: str | None,
    endpoint: str | None,
    listener_name: str,
    timeout_ms: int,
    output: str,
) -> None:
    """Let a controller vote that follows the metadata log already."""
    if properties is not None:
        if not (node_id is None and directory is None and endpoint is None):
            raise click.UsageError("--config says what the --controller options say: give the one or the others")
        node = described_controller(properties)
    elif node_id is None or directory is None or endpoint is None:
        raise click.UsageError("give --config, or --controller-id, --controller-directory-id and --controller-endpoint")
    else:
        address = parse_endpoint(endpoint, "--controller-endpoint")
        node = NewController(node_id, directory_id(directory), Listener(listener_name, *address))
    request = AddRaftVoterRequest(
        cluster_id=node.cluster_id,
        timeout_ms=timeout_ms,
        voter_id=node.node_id,
        voter_directory_id=node.directory_id,
        listeners=[WireListener(*node.listener)],
    )
    answer = add_voter(bootstrap, request, timeout_ms / 1000)
    refuse(answer.error_code, f"controller {node.node_id} was not added", answer.error_message)
    _show_change("added", node.node_id, node.directory_id, str(node.listener.endpoint), output)


@quorum.command("remove-controller")
@bootstrap_option
@click.option("--controller-id", "node_id", type=click.IntRange(0), required=True, help="The voter's node.id.")
@click.option(
    "--controller-directory-id",
    "directory",
    required=True,
    help="Its directory id, as `ottla quorum describe` shows it (- when it shows none).",
)
@timeout_option
@output_option
def remove_controller(bootstrap: str, node_id: int, directory: str, timeout_ms: int, output: str) -> None:
    """Take a controller's vote away, be it the leader; then it may be stopped."""
    removed = ZERO_ID if directory == "-" else directory_id(directory)
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=removed)
    answer = remove_voter(bootstrap, request, timeout_ms / 1000)
    refuse(answer.error_code, f"controller {node_id} was not removed", answer.error_message)
    _show_change("removed", node_id, removed, None, output)


class NewController(NamedTuple):
    """What the quorum has to know of a controller that is to vote."""

    node_id: int
    directory_id: bytes
    listener: Listener
    cluster_id: str | None = None


def described_controller(properties: Path) -> NewController:
    """From its settings and its formatted directory. Raises CommandError, SettingError, CheckpointError."""
    config = ServerConfig.load(properties)
    listener, endpoint = config.controller_listener, config.controller_endpoint
    if not config.is_controller or listener is None or endpoint is None:
        raise CommandError(f"{properties} is no controller's: add controller to process.roles, and its listener")
    meta = MetaProperties.read(RealDisk(), config.metadata_log_dir)
    if meta is None:
        raise CommandError(
            f"{config.metadata_log_dir} is not formatted: run ottla storage format --no-initial-controllers, start the "
            "node, then add it; on another machine give the --controller options instead of --config"
        )
    return NewController(meta.node_id, meta.directory_id, Listener(listener.name, *endpoint), meta.cluster_id)


def directory_id(text: str) -> bytes:
    """Raises UsageError when it is no id."""
    try:
        return id_from_text(text)
    except ValueError as error:
        raise click.UsageError(f"--controller-directory-id: {error}; ottla quorum describe shows it") from error


def _show_change(what: str, node_id: int, directory: bytes, endpoint: str | None, output: str) -> None:
    row: Row = {
        "change": what,
        "node": node_id,
        "directory id": None if directory == ZERO_ID else id_to_text(directory),
    }
    if endpoint is not None:
        row["endpoint"] = endpoint
    show([row], row, output)


def _replica(replica: ReplicaState, role: str, leader_end: int, newest_ms: int) -> Row:
    known = replica.last_caught_up_timestamp >= 0
    return {
        "node": replica.replica_id,
        "directory id": None if replica.replica_directory_id == ZERO_ID else id_to_text(replica.replica_directory_id),
        "role": role,
        "log end offset": replica.log_end_offset,
        "lag": max(0, leader_end - replica.log_end_offset),
        "behind ms": max(0, newest_ms - replica.last_caught_up_timestamp) if known else None,
        "last fetch ms": replica.last_fetch_timestamp,
        "last caught up ms": replica.last_caught_up_timestamp,
    }


def _status(state: QuorumState) -> Row:
    leader_end = next((each.log_end_offset for each in state.current_voters if each.replica_id == state.leader_id), 0)
    followers = [each for each in state.current_voters if each.replica_id != state.leader_id]
    newest_ms = max((each.last_caught_up_timestamp for each in state.current_voters), default=-1)
    return {
        "leader": state.leader_id,
        "epoch": state.leader_epoch,
        "high watermark": state.high_watermark,
        "max lag": max((leader_end - each.log_end_offset for each in followers), default=0),
        "max lag ms": max((newest_ms - each.last_caught_up_timestamp for each in followers), default=0),
        "voters": [each.replica_id for each in state.current_voters],
        "observers": [each.replica_id for each in state.observers],
    }
