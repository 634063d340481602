"""What `ottla quorum` asks of a broker."""

from pathlib import Path
from typing import NamedTuple

import click

from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.broker.wire.messages.add_raft_voter_request import Listener as WireListener
from ottla.broker.wire.messages.describe_quorum_response import DescribeQuorumResponse, ReplicaState
from ottla.broker.wire.messages.describe_quorum_response import PartitionData as QuorumState
from ottla.broker.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.cli.failures import CommandError, refuse
from ottla.cli.output import Row
from ottla.cli.voter_change import add_voter, describe_quorum, kraft_version, remove_voter
from ottla.cli.where import Where
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.raft.voters import KRAFT_VERSION
from ottla.runtime.identifiers import ZERO_ID, id_from_text, id_to_text
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.endpoints import Endpoint, Listener, parse_endpoint
from ottla.runtime.settings.server import ServerConfig

# As it is.


def status_row(where: Where) -> Row:
    """The quorum as a whole. Raises CommandError."""
    return {**_status(_state(describe_quorum(where))), KRAFT_VERSION: kraft_version(where)}


def replica_rows(where: Where) -> list[Row]:
    """A row a voter and observer. Raises CommandError."""
    answer = describe_quorum(where)
    state = _state(answer)
    leader_end = next((each.log_end_offset for each in state.current_voters if each.replica_id == state.leader_id), 0)
    newest_ms = max((each.last_caught_up_timestamp for each in state.current_voters), default=-1)
    places = {each.node_id: each.listeners for each in answer.nodes}
    voters = [
        _replica(each, "leader" if each.replica_id == state.leader_id else "follower", leader_end, newest_ms)
        for each in sorted(state.current_voters, key=_node)
    ]
    rows = voters + [_replica(each, "observer", leader_end, newest_ms) for each in sorted(state.observers, key=_node)]
    for row in rows:
        row["endpoint"] = next((str(Endpoint(each.host, each.port)) for each in places.get(row["node"], [])), None)
    return rows


def _node(replica: ReplicaState) -> int:
    return replica.replica_id


def _state(answer: DescribeQuorumResponse) -> QuorumState:
    refuse(answer.error_code, "describe", answer.error_message)
    if not answer.topics or not answer.topics[0].partitions:
        raise CommandError("the broker answered nothing about the quorum; ask another one")
    state = answer.topics[0].partitions[0]
    refuse(state.error_code, "describe", state.error_message)
    return state


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
        "max lag ms": _max_lag_ms(followers, newest_ms),
        "voters": [each.replica_id for each in state.current_voters],
        "observers": [each.replica_id for each in state.observers],
    }


def _max_lag_ms(followers: list[ReplicaState], newest_ms: int) -> int | None:
    """None where the leader has not heard of one of them: that one is behind for longer than anybody knows."""
    caught_up = [each.last_caught_up_timestamp for each in followers]
    return None if -1 in caught_up else max((newest_ms - each for each in caught_up), default=0)


# Changing it.


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


def new_controller(node_id: int, directory: str, listener_name: str, endpoint: str) -> NewController:
    """As a person describes it. Raises UsageError, SettingError."""
    address = parse_endpoint(endpoint, "--controller-endpoint")
    return NewController(node_id, directory_id(directory), Listener(listener_name, *address))


def directory_id(text: str) -> bytes:
    """Raises UsageError when it is no id."""
    try:
        return id_from_text(text)
    except ValueError as error:
        raise click.UsageError(f"--controller-directory-id: {error}; ottla quorum describe shows it") from error


def add(where: Where, node: NewController, timeout_ms: int) -> Row:
    """What was changed. Raises CommandError."""
    request = AddRaftVoterRequest(
        cluster_id=node.cluster_id,
        timeout_ms=timeout_ms,
        voter_id=node.node_id,
        voter_directory_id=node.directory_id,
        listeners=[WireListener(*node.listener)],
    )
    answer = add_voter(where, request, timeout_ms / 1000)
    refuse(answer.error_code, f"controller {node.node_id} was not added", answer.error_message)
    return {**_change("added", node.node_id, node.directory_id), "endpoint": str(node.listener.endpoint)}


def remove(where: Where, node_id: int, directory: bytes | None, timeout_ms: int) -> Row:
    """What was changed. Raises CommandError."""
    removed = directory or ZERO_ID
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=removed)
    answer = remove_voter(where, request, timeout_ms / 1000)
    refuse(answer.error_code, f"controller {node_id} was not removed", answer.error_message)
    return _change("removed", node_id, removed)


def _change(what: str, node_id: int, directory: bytes) -> Row:
    return {"change": what, "node": node_id, "directory id": None if directory == ZERO_ID else id_to_text(directory)}
