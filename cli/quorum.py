"""``ottla quorum``: the metadata quorum as its leader sees it."""

import click

from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.describe_quorum_response import DescribeQuorumResponse, ReplicaState
from ottla.broker.wire.messages.describe_quorum_response import PartitionData as QuorumState
from ottla.cli.client import Client
from ottla.cli.failures import CommandError
from ottla.cli.output import Row, bootstrap_option, output_option, show
from ottla.cli.topics import refuse
from ottla.runtime.identifiers import ZERO_ID, id_to_text

METADATA_TOPIC = "__cluster_metadata"


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
    with Client(bootstrap) as client:
        asked = [TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
        answer = client.call(DescribeQuorumRequest(topics=asked), DescribeQuorumResponse)
    refuse(answer.error_code, "describe", answer.error_message)
    if not answer.topics or not answer.topics[0].partitions:
        raise CommandError("the broker answered nothing about the quorum; ask another one")
    state = answer.topics[0].partitions[0]
    refuse(state.error_code, "describe", state.error_message)
    if what == "status":
        show(
            [_status(state)],
            ["leader", "epoch", "high watermark", "max lag", "max lag ms", "voters", "observers"],
            output,
        )
        return
    leader_end = next((each.log_end_offset for each in state.current_voters if each.replica_id == state.leader_id), 0)
    newest_ms = max((each.last_caught_up_timestamp for each in state.current_voters), default=-1)
    voters = [
        _replica(each, "leader" if each.replica_id == state.leader_id else "follower", leader_end, newest_ms)
        for each in state.current_voters
    ]
    observers = [_replica(each, "observer", leader_end, newest_ms) for each in state.observers]
    show(voters + observers, ["node", "directory id", "role", "log end offset", "lag", "behind ms"], output)


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
