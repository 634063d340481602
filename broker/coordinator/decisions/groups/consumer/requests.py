"""ConsumerGroupHeartbeat (68): what a request may say (KIP-848), and what it says."""

from collections.abc import Collection

from ottla.broker.coordinator.decisions.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    Held,
)
from ottla.broker.coordinator.decisions.groups.consumer.reconciliation import Owned
from ottla.broker.coordinator.decisions.groups.regexes.matching import RegexError
from ottla.broker.coordinator.decisions.groups.regexes.matching import check as check_regex
from ottla.broker.coordinator.decisions.record_format import fits
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.runtime.errors import ErrorCode, KafkaError

_ID_BY_CLIENT_FROM = 1
NOT_SAID = -1
_TOLD_CHARACTERS = 200
"""Of an expression that is none."""


def check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]) -> None:
    """Raises KafkaError: INVALID_REQUEST, INVALID_GROUP_ID, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION."""
    _check_names(request)
    _check_epoch_said(request, version)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = ", ".join(assignors)
        message = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    if request.subscribed_topic_regex:
        _check_regex(request.subscribed_topic_regex)


def _check_names(request: ConsumerGroupHeartbeatRequest) -> None:
    for what, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{what} can't be empty.")
    if not all(map(fits, (request.group_id, request.member_id))):
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "An id has at most 32767 bytes.")


def _check_epoch_said(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    epoch, is_joining = request.member_epoch, request.member_epoch == JOINING_EPOCH
    if epoch < STATIC_LEAVING_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if not request.member_id.strip() and (version >= _ID_BY_CLIENT_FROM or not is_joining):
        raise _invalid("MemberId can't be empty.")
    if epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if is_joining:
        _check_joining(request)


def _check_regex(regex: str) -> None:
    try:
        check_regex(regex)
    except RegexError as error:
        message = f"SubscribedTopicRegex `{regex[:_TOLD_CHARACTERS]}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NOT_SAID:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A member says everything when it joins, and when it does not know whether it was heard: it is told everything."""
    if request.member_epoch == JOINING_EPOCH:
        return True
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return subscribes and request.rebalance_timeout_ms != NOT_SAID and request.topic_partitions is not None


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for each in request.topic_partitions:  # a topic may be named more than once, and very often
        owned.setdefault(each.topic_id, set()).update(each.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raises KafkaError (FENCED_MEMBER_EPOCH). The epoch before is taken where the answer with the next one may have been lost: from a
    member that has nothing but what it was given."""
    if epoch in (member.epoch, JOINING_EPOCH):
        return
    if epoch > member.epoch:
        raise _fenced(f"has a greater member epoch ({epoch}) than the one known", member)
    if epoch != member.previous_epoch or owned is None or not _is_part_of(owned, member.assigned):
        raise _fenced(f"has a smaller member epoch ({epoch}) than the one known", member)


def is_behind(request: ConsumerGroupHeartbeatRequest, member: ConsumerMember, owned: Owned | None) -> bool:
    """It has not come to what it was given, as far as it says: an epoch or partitions. It may be about to, or never have heard of it: the
    answer was lost with a connection, or was to a request that a later one on another connection had overtaken. There Kafka tells it
    nothing, and what it was given is read by nobody."""
    if request.member_epoch != member.epoch:
        return True
    if owned is None:
        return False
    given = {topic_id: held.keys() for topic_id, held in member.assigned.items() if held}
    return given != {topic_id: partitions for topic_id, partitions in owned.items() if partitions}


def refused(error: ErrorCode, message: str = "The change could not be written.") -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


def _is_part_of(owned: Owned, held: Held) -> bool:
    return all(partitions <= held.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


def _fenced(how: str, member: ConsumerMember) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member {how} by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
