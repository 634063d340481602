"""A request that was carried out under another controller, and comes again because its answer was lost on the way.

Most requests may simply be decided again: registrations and settings come out the same, ISR changes are fenced by epochs, a
block of producer ids more costs nothing. Five would be told that what they want is there, or gone, already. And what others did since
is not to be undone: a topic that was created again is another one, so is a broker that registered again, and a move that was given
up is not to begin again.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.decision import Decision
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.runtime.errors import ErrorCode


def done_already(name: str) -> Decision[Any] | None:
    """The answer that was lost, where nothing has to be looked at for it: whoever has that broker's id now is another."""
    return Decision(rpc.UnregisterBrokerResponse()) if name == "unregister_broker" else None


def has_nothing_left(name: str, request: rpc.ControllerRequest) -> bool:
    """Whether a repetition must change nothing. Of several topics, settings or moves some may have failed, and may be taken now; none is
    deleted that was not there."""
    return name == "delete_topics" or _is_of_one(name, request)


def _is_of_one(name: str, request: rpc.ControllerRequest) -> bool:
    parts = _PARTS.get(name)
    return parts is not None and len(parts(getattr(request, name))) == 1


def answer_again(state: ControllerState, name: str, request: rpc.ControllerRequest, response: Any) -> None:
    """Turns the error that a repetition got into the answer that was lost.

    Only for one topic, or partition, a request: of several, some may have failed the first time for the same reason.
    """
    forgive = _FORGIVE.get(name)
    if forgive is not None and _is_of_one(name, request):
        forgive(state, getattr(request, name).topics[0], response.topics[0])


def _created(
    state: ControllerState, asked: rpc.CreateTopicsRequest.Topic, result: rpc.CreateTopicsResponse.Topic
) -> None:
    topic = state.image.topics_by_name.get(asked.name)
    if topic is None or result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        return
    result.Clear()
    result.name, result.topic_id = topic.name, topic.id
    result.num_partitions, result.replication_factor = len(topic.partitions), len(topic.partitions[0].replicas)
    result.configs.extend(rpc.TopicConfig(name=each.name, value=each.value) for each in asked.configs)


def _deleted(
    _state: ControllerState, _asked: rpc.DeleteTopicsRequest.Topic, result: rpc.DeleteTopicsResponse.Topic
) -> None:
    if result.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        result.ClearField("error_code")
        result.ClearField("error_message")


def _grown(
    state: ControllerState, asked: rpc.CreatePartitionsRequest.Topic, result: rpc.CreatePartitionsResponse.Topic
) -> None:
    topic = state.image.topics_by_name.get(asked.name)
    if topic is not None and len(topic.partitions) == asked.count:
        result.ClearField("error_code")
        result.ClearField("error_message")


def _given_up(
    _state: ControllerState,
    _asked: rpc.AlterPartitionReassignmentsRequest.Topic,
    result: rpc.AlterPartitionReassignmentsResponse.Topic,
) -> None:
    move = result.partitions[0]
    if move.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
        move.ClearField("error_code")
        move.ClearField("error_message")


_FORGIVE: dict[str, Callable[[ControllerState, Any, Any], None]] = {
    "create_topics": _created,
    "delete_topics": _deleted,
    "create_partitions": _grown,
    "alter_partition_reassignments": _given_up,
}

_PARTS: dict[str, Callable[[Any], Sequence[Any]]] = {
    **dict.fromkeys(_FORGIVE, lambda body: body.topics),
    "alter_partition_reassignments": lambda body: [each for topic in body.topics for each in topic.partitions],
    "incremental_alter_configs": lambda body: body.resources,
}
"""What a request asks for, of which each is carried out or refused by itself."""
