"""Which decider answers which request, and what the requests of a broker say of its session."""

from collections.abc import Callable
from typing import Any

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions import cluster
from ottla.quorum.controller.decisions.alter_partition import alter_partition
from ottla.quorum.controller.decisions.configs import incremental_alter_configs
from ottla.quorum.controller.decisions.damage import report_damage
from ottla.quorum.controller.decisions.decision import Decision
from ottla.quorum.controller.decisions.directories import assign_replicas
from ottla.quorum.controller.decisions.elections import elect_leaders
from ottla.quorum.controller.decisions.features import register_controller, update_features
from ottla.quorum.controller.decisions.producer_ids import allocate_producer_ids
from ottla.quorum.controller.decisions.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.topics import create_partitions, create_topics, delete_topics
from ottla.runtime.errors import ErrorCode, KafkaError

Decider = Callable[[ControllerState, Any], Decision[Any]]

DECIDERS: dict[str, Decider] = {
    "broker_heartbeat": cluster.broker_heartbeat,
    "create_topics": create_topics,
    "delete_topics": delete_topics,
    "create_partitions": create_partitions,
    "alter_partition": alter_partition,
    "allocate_producer_ids": allocate_producer_ids,
    "incremental_alter_configs": incremental_alter_configs,
    "unregister_broker": cluster.unregister_broker,
    "elect_leaders": elect_leaders,
    "update_features": update_features,
    "alter_partition_reassignments": alter_partition_reassignments,
    "list_partition_reassignments": list_partition_reassignments,
    "register_controller": register_controller,
    "assign_replicas_to_directories": assign_replicas,
    "report_damage": report_damage,
}


def decide(
    state: ControllerState, name: str, request: rpc.ControllerRequest, next_offset: int, now_ms: int
) -> Decision[Any]:
    """What the request ``name`` (the body's field) comes to. Raises KafkaError."""
    if name == "register_broker":
        return cluster.register_broker(state, request.register_broker, next_offset, now_ms)
    decider = DECIDERS.get(name)
    if decider is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "this controller does not know the request: it is an older version"
        )
    state.request_id = request.request_id
    return decider(state, getattr(request, name))


def note_contact(state: ControllerState, beat: rpc.BrokerHeartbeatRequest, now_ms: int) -> None:
    """Whatever comes of a heartbeat and however late it is, it is a sign of life."""
    broker = state.image.brokers.get(beat.broker_id)
    if broker is not None and broker.epoch == beat.broker_epoch:
        state.sessions.contact(beat.broker_id, beat.broker_epoch, beat.current_metadata_offset, now_ms)


def note_outcome(
    state: ControllerState, name: str, request: rpc.ControllerRequest, response: Any, offset: int, now_ms: int
) -> None:
    """What a session learns from a decision whose last record is at ``offset``."""
    if name == "broker_heartbeat" and cluster.shutdown_begins(state, request.broker_heartbeat.broker_id):
        state.sessions.begin_shutdown(request.broker_heartbeat.broker_id, offset)
    elif name == "register_broker":
        # A broker that registers has read nothing yet; nobody waits for it, because it is fenced.
        state.sessions.contact(request.register_broker.broker_id, response.broker_epoch, -1, now_ms)
