"""The target of a group, as its assignor says it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.broker.coordinator.decisions.groups.assignors import ASSIGNORS, Assignment, MemberSpec
from ottla.broker.coordinator.decisions.groups.assignors.pieces import InPieces, Pace
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, SubscribedIds
from ottla.broker.coordinator.decisions.groups.regexes.resolution import Resolved

_SPEC = 2.0
"""Steps of a member."""


def is_due(group: ConsumerGroup, time_ms: int, interval_ms: int) -> bool:
    """A storm of joins costs one target an interval (KIP-1263), not one for each. A clock that went back does not hold it up."""
    if group.epoch <= group.assignment_epoch:
        return False
    return not 0 <= time_ms - group.assignment_time_ms < interval_ms


def preferred_assignor(votes: Mapping[str, int], known: tuple[str, ...]) -> str:
    """The one that most members ask for. What this node does not know, another one did, before."""
    counted = [(-count, name) for name, count in votes.items() if count > 0 and name in known]
    return min(counted)[1] if counted else known[0]


class Plan(NamedTuple):
    """What a group was when its target began to be computed."""

    epoch: int
    members: Sequence[ConsumerMember]
    targets: Mapping[str, Assignment]
    resolved: Mapping[str, Resolved]


def plan_of(group: ConsumerGroup) -> Plan:
    """Members do not change; others take their places."""
    return Plan(group.epoch, list(group.members.values()), dict(group.targets), dict(group.resolved))


def next_target(plan: Plan, assignor: str, topics: GroupTopics, pace: Pace) -> InPieces[dict[str, Assignment]]:
    """The target of each member. The plan is as it was, whatever the group becomes meanwhile; topics that change bring another epoch."""
    specs = yield from _specs(plan, topics, pace)
    counts = {each: topics.partition_count(each) for spec in {spec.topics for spec in specs.values()} for each in spec}
    return (yield from ASSIGNORS[assignor](specs, counts, pace))


def _specs(plan: Plan, topics: GroupTopics, pace: Pace) -> InPieces[dict[str, MemberSpec]]:
    """Most members subscribe to the same: their ids are looked up once."""
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    specs = {}
    for member in plan.members:
        subscription = member.topics, member.regex
        steps = _SPEC
        if subscription not in ids:
            names = member.topics
            if member.regex and member.regex in plan.resolved:
                names |= plan.resolved[member.regex].topics
            ids[subscription] = SubscribedIds(names, topics).all()
            steps += len(names)
        target = plan.targets.get(member.id, {})
        specs[member.id] = MemberSpec(ids[subscription], target, member.instance_id, member.rack_id)
        if pace.is_over(steps):
            yield
    return specs
