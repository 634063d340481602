"""The target of a group: what an assignor says, as records."""

from collections.abc import Mapping

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.assignors import ASSIGNORS, MemberSpec
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.records import target_epoch_record, target_record
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, SubscribedIds


def is_due(group: ConsumerGroup, time_ms: int, interval_ms: int) -> bool:
    """A storm of joins costs one target an interval (KIP-1263), not one for each. A clock that went back does not hold it up."""
    if group.epoch <= group.assignment_epoch:
        return False
    return not 0 <= time_ms - group.assignment_time_ms < interval_ms


def preferred_assignor(votes: Mapping[str, int], known: tuple[str, ...]) -> str:
    """The one that most members ask for. What this node does not know, another one did, before."""
    counted = [(-count, name) for name, count in votes.items() if count > 0 and name in known]
    return min(counted)[1] if counted else known[0]


def next_target(group: ConsumerGroup, assignor: str, topics: GroupTopics, time_ms: int) -> list[Record]:
    """Records for those whose target changes, and last the one that says for which epoch they are."""
    specs = _members(group, topics)
    counts = {each: topics.partition_count(each) for spec in {spec.topics for spec in specs.values()} for each in spec}
    found = ASSIGNORS[assignor](specs, counts)
    records = [
        target_record(group.id, member_id, target)
        for member_id in specs
        if (target := found.get(member_id, {})) != group.targets.get(member_id)
    ]
    records.append(target_epoch_record(group.id, group.epoch, time_ms))
    return records


def _members(group: ConsumerGroup, topics: GroupTopics) -> dict[str, MemberSpec]:
    """Most members subscribe to the same: their ids are looked up once."""
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    specs = {}
    for member in group.members.values():
        subscription = member.topics, member.regex
        if subscription not in ids:
            ids[subscription] = SubscribedIds(group.topics_of(member), topics).all()
        target = group.targets.get(member.id, {})
        specs[member.id] = MemberSpec(ids[subscription], target, member.instance_id, member.rack_id)
    return specs
