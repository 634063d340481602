"""Who sends a heartbeat: a member, a new one, or another process of a static one."""

from typing import NamedTuple

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.effects import Asker, Record
from ottla.broker.coordinator.decisions.groups.consumer import requests
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
)
from ottla.broker.coordinator.decisions.groups.consumer.reconciliation import Owned
from ottla.broker.coordinator.decisions.groups.consumer.records import (
    current_record,
    member_record,
    member_tombstones,
    target_record,
)
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.runtime.errors import ErrorCode, KafkaError


class Identity(NamedTuple):
    """Who asks, as it was until now."""

    member: ConsumerMember
    is_new: bool = False
    records: tuple[Record, ...] = ()
    """By which it takes the place of the process before it."""


def identified(
    group: ConsumerGroup | None, member_id: str, request: ConsumerGroupHeartbeatRequest, owned: Owned | None
) -> Identity:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID."""
    is_joining, instance_id = request.member_epoch == JOINING_EPOCH, request.instance_id
    holder_id = group.static.get(instance_id) if group is not None and instance_id is not None else None
    if group is not None and holder_id is not None and holder_id != member_id:
        if not is_joining:
            message = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, message)
        holder = group.members[holder_id]
        _check_released(holder, member_id)
        return succeeded(group, holder, member_id)
    if instance_id is not None and holder_id is None and not is_joining:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    known = group.members.get(member_id) if group is not None else None
    if known is None:
        if not is_joining:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"There is no member {member_id} in {request.group_id}.")
        return Identity(ConsumerMember(member_id), is_new=True)
    requests.check_epoch(known, request.member_epoch, owned)
    if known.state is MemberState.UNKNOWN and owned != {}:
        message = "The member is in an unknown state. It must abandon all its partitions and rejoin."
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)
    return Identity(known)


def _check_released(holder: ConsumerMember, member_id: str) -> None:
    """The process before it has said that it leaves, unless it is a classic one: those never say it."""
    if holder.epoch != STATIC_LEAVING_EPOCH and holder.classic is None:
        message = (
            f"Static member {member_id} with instance id {holder.instance_id} cannot join the group because the "
            f"instance id is owned by member {holder.id}."
        )
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, message)


def succeeded(group: ConsumerGroup, holder: ConsumerMember, member_id: str) -> Identity:
    """It has what the process before it had."""
    member = replace(holder, id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    records = (
        *member_tombstones(group.id, holder.id),
        member_record(group.id, member),
        target_record(group.id, member_id, group.targets.get(holder.id, {})),
        current_record(group.id, member),
    )
    # A member that becomes another instance leaves what it had to others: another target is due.
    return Identity(member, is_new=member_id in group.members, records=records)


def updated(member: ConsumerMember, asker: Asker, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """With what it says of itself now; what it leaves out has not changed. The same one when nothing has."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    after = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=asker.client_id,
        client_host=asker.client_host,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == requests.NOT_SAID else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )
    return member if after == member else after
