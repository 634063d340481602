"""A request that was carried out under another controller, and comes again because its answer was lost on the way.

Most requests may simply be decided again: registrations and settings come out the same, ISR changes are fenced by epochs, a
block of producer ids more costs nothing. Four would be told that what they want is there, or gone, already.
"""

from collections.abc import Callable
from typing import Any

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.runtime.errors import ErrorCode, KafkaError


def is_once(name: str) -> bool:
    """Whether a repetition must change nothing: a topic that is there by now has the name of the one that was deleted, and is another."""
    return name == "delete_topics"


def answer_refused(name: str, error: KafkaError) -> rpc.ControllerResponse | None:
    """The answer that was lost, where a repetition is refused because it is done."""
    if name == "unregister_broker" and error.code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        return rpc.ControllerResponse(unregister_broker=rpc.UnregisterBrokerResponse())
    return None


def answer_again(state: ControllerState, name: str, request: rpc.ControllerRequest, response: Any) -> None:
    """Turns the error that a repetition got into the answer that was lost.

    Only for one topic a request: of several, some may have failed the first time for the same reason.
    """
    forgive = _FORGIVE.get(name)
    if forgive is not None and len(getattr(request, name).topics) == 1:
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


_FORGIVE: dict[str, Callable[[ControllerState, Any, Any], None]] = {
    "create_topics": _created,
    "delete_topics": _deleted,
    "create_partitions": _grown,
}
