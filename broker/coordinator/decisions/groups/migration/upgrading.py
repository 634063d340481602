"""A classic group of consumers becomes a consumer group, because a member joins that speaks the consumer protocol.

Its members stay and go on with what they have. Their next heartbeat tells them to join again, and from then on the coordinator
answers them as members of a consumer group (`emulation.py`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, Held, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, metadata_hash
from ottla.broker.coordinator.decisions.groups.embedded_protocol import (
    CONSUMER,
    Partitions,
    Subscription,
    read_assignment,
    read_subscription,
)
from ottla.broker.coordinator.decisions.groups.group_records import group_tombstone
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from ottla.runtime.errors import ErrorCode, KafkaError

_DUE_AT_ONCE = 0
"""When its target was computed: never, so that the next one is not made to wait."""


class _Known(NamedTuple):
    """What a member and its leader told each other."""

    subscription: Subscription
    assigned: Partitions


def upgraded(group: ClassicGroup, topics: GroupTopics, size_max: int) -> list[Record]:
    """What to write, together or not at all. Raises KafkaError (GROUP_ID_NOT_FOUND, which is what Kafka says) for a group that cannot
    become one."""
    if group.protocol_type != CONSUMER:
        raise _refused(group, f"its protocol type is {group.protocol_type!r}")
    if len(group.members) > size_max:
        raise _refused(group, f"it has more than group.consumer.max.size={size_max} members")
    known = {each.id: _known(group, each) for each in group.members.values()}
    epoch = max(group.generation, 1)  # a member's epoch 0 means that it joins
    assigned = _held({each: what.assigned for each, what in known.items()}, {}, topics)
    newest_first = sorted(known.items(), key=lambda each: -each[1].subscription.generation)
    owned = {each: what.subscription.owned for each, what in newest_first}
    revoking = _held(owned, assigned, topics)
    members = [
        _member(group.members[each], what.subscription, epoch, assigned.get(each, {}), revoking.get(each, {}))
        for each, what in known.items()
    ]
    names = {name for what in known.values() for name in what.subscription.topics}
    return [
        group_tombstone(group.id),
        *(member_record(group.id, each) for each in members),
        # Another target is due: what nobody has yet a rebalance was to give somebody, and a stable group may have been between two of them.
        epoch_record(group.id, epoch + 1, metadata_hash(names, topics)),
        *(
            target_record(group.id, each.id, {t: frozenset(held) for t, held in each.assigned.items()})
            for each in members
        ),
        target_epoch_record(group.id, epoch, _DUE_AT_ONCE),
        *(current_record(group.id, each) for each in members),
    ]


def check_room(group: ClassicGroup, member_id: str, instance_id: str | None, size_max: int) -> None:
    """Raises KafkaError (GROUP_MAX_SIZE_REACHED) where the one that joins would find the consumer group full: a group does not change
    for a member that is then refused."""
    has_place = member_id in group.members or (instance_id is not None and instance_id in group.static)
    if not has_place and len(group.members) >= size_max:
        message = f"The consumer group has reached its maximum capacity of {size_max} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def _known(group: ClassicGroup, member: Member) -> _Known:
    metadata = member.metadata(group.protocol) or (member.protocols[0][1] if member.protocols else b"")
    try:
        subscription, assignment = read_subscription(metadata), read_assignment(member.assignment)
    except WireError as error:
        raise _refused(group, f"what member {member.id} tells its leader cannot be read: {error}") from error
    if assignment.has_user_data:
        raise _refused(group, "its assignor tells members more than partitions, which would be lost")
    return _Known(subscription, assignment.partitions)


def _held(
    told: Mapping[str, Partitions], by_others: Mapping[str, Mapping[bytes, frozenset[int]]], topics: GroupTopics
) -> dict[str, dict[bytes, frozenset[int]]]:
    """By member and topic id. Of topics that there are; and no partition twice, whatever members say: the first of them is believed."""
    taken: dict[bytes, set[int]] = {}
    for held in by_others.values():
        for topic_id, partitions in held.items():
            taken.setdefault(topic_id, set()).update(partitions)
    found: dict[str, dict[bytes, frozenset[int]]] = {}
    for member_id, by_name in told.items():
        for name, partitions in by_name.items():
            known_id = topics.id_of(name)
            if known_id is None:
                continue
            others = taken.setdefault(known_id, set())
            mine = frozenset(each for each in partitions - others if 0 <= each < topics.partition_count(known_id))
            if mine:
                others |= mine
                found.setdefault(member_id, {})[known_id] = mine
    return found


def _member(
    member: Member,
    subscription: Subscription,
    epoch: int,
    assigned: Mapping[bytes, frozenset[int]],
    revoking: Mapping[bytes, frozenset[int]],
) -> ConsumerMember:
    """What it read when it joined the last time, and was not assigned again, it may still be giving up: nobody gets it before it joins
    again and does not name it."""
    protocols = [ClassicProtocol(name, metadata) for name, metadata in member.protocols]
    return ConsumerMember(
        member.id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(member.session_timeout_ms, protocols),
        epoch=epoch,
        previous_epoch=epoch,
        state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
        assigned=_since(assigned, epoch),
        revoking=_since(revoking, epoch),
    )


def _since(partitions: Mapping[bytes, frozenset[int]], epoch: int) -> Held:
    return {topic_id: dict.fromkeys(sorted(each), epoch) for topic_id, each in partitions.items()}


def _refused(group: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.id} is not a consumer group and cannot become one: {why}."
    )
