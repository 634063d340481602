"""A consumer group becomes a classic group, because the last member has left that speaks the consumer protocol.

Those that stay have what they hold; the coordinator then begins a rebalance, in which one of them leads.
"""

from collections import Counter
from collections.abc import Iterable

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.consumer.records import group_tombstones, member_tombstones
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics
from ottla.broker.coordinator.decisions.groups.embedded_protocol import CONSUMER, read_subscription, written_assignment
from ottla.broker.coordinator.decisions.groups.group_records import group_record
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata


def can_be_downgraded(group: ConsumerGroup, size_max: int) -> bool:
    """Whether all of its members, of whom there are some, speak the classic protocol, and understand each other."""
    members = group.members.values()
    if not 0 < len(members) <= size_max or any(each.classic is None for each in members):
        return False
    return bool(common_protocols(members))


def downgraded(group: ConsumerGroup, topics: GroupTopics, time_ms: int) -> ClassicGroup:
    """The group as it will be, of one whose members are all classic. The generation is the highest that any of them knows: those that
    know it are told to join again, and go on until then; others have missed something, and begin anew."""
    classic = ClassicGroup(group.id, time_ms)
    classic.generation = max(1, *(each.epoch for each in group.members.values()))
    for each in group.members.values():
        if each.classic is not None:
            member = _member(each, each.classic, topics)
            member.is_behind = each.epoch < classic.generation
            classic.add(member, CONSUMER)
    classic.protocol = classic.chosen_protocol()
    classic.leader_id = (
        None  # written so: another coordinator sees that nobody has assigned this, and begins the rebalance too
    )
    classic.state = GroupState.STABLE
    return classic


def downgrade_records(group: ConsumerGroup, classic: ClassicGroup) -> list[Record]:
    """What to write, together or not at all."""
    tombstones = [each for member_id in group.members for each in member_tombstones(group.id, member_id)]
    assignments = {each.id: each.assignment for each in classic.members.values()}
    return [*tombstones, *group_tombstones(group), group_record(classic, assignments)]


def common_protocols(members: Iterable[ConsumerMember]) -> set[str] | None:
    """What all classic members among them can do; None if there are none."""
    known = [each.classic for each in members if each.classic is not None]
    votes = Counter(name for each in known for name in {protocol.name for protocol in each.supported_protocols})
    return {name for name, count in votes.items() if count == len(known)} if known else None


def _member(member: ConsumerMember, classic: ClassicMemberMetadata, topics: GroupTopics) -> Member:
    """It has what it holds, not what it was to get: others may still hold that."""
    return Member(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        [(each.name, each.metadata) for each in classic.supported_protocols],
        assignment_of(member, topics),
    )


def assignment_of(member: ConsumerMember, topics: GroupTopics) -> bytes:
    """What it holds, as a classic consumer is told it: in the version of its own subscription."""
    held = {
        name: partitions
        for topic_id, partitions in member.assigned.items()
        if (name := topics.name_of(topic_id)) is not None
    }
    return written_assignment(_version(member), held)


def _version(member: ConsumerMember) -> int:
    if member.classic is None or not member.classic.supported_protocols:
        return 0
    try:
        return read_subscription(member.classic.supported_protocols[0].metadata).version
    except WireError:
        return 0
