"""The rebalance recorder of consumer groups (KIP-848). A rebalance begins with an epoch of the group, and is over when every member has
come to the target. What changes meanwhile belongs to it: nobody waits for the others here.

It decides nothing, and nothing depends on it.
"""

from collections.abc import Mapping, Sequence

from ottla.broker.coordinator.decisions.effects import Effects
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics
from ottla.broker.coordinator.decisions.groups.offset_store import Place
from ottla.broker.coordinator.decisions.groups.rebalance_record import Cause, Kind, RebalanceRecord, cut
from ottla.broker.coordinator.decisions.groups.rebalance_recorder import RebalanceRecorder

COMPARED_PARTITIONS_MAX = 5_000

Owners = Mapping[bytes, Mapping[int, str]]


class _UnderWay:
    """A rebalance that goes on."""

    __slots__ = ("aimed_ms", "before", "begun_ms", "record", "unsettled")

    def __init__(self, record: RebalanceRecord, begun_ms: int, before: Owners) -> None:
        self.record, self.begun_ms, self.aimed_ms, self.before = record, begun_ms, begun_ms, before
        self.unsettled: set[str] | None = None
        """Members that have not come to the target yet; None while there is none."""


class ConsumerRecorder:
    """For the consumer groups of a shard; what is over is kept with the classic groups'."""

    def __init__(self, effects: Effects, topics: GroupTopics, recorder: RebalanceRecorder) -> None:
        self._effects = effects
        self._topics = topics
        self._recorder = recorder
        self._before: dict[str, Owners] = {}
        self._under_way: dict[str, _UnderWay] = {}
        self.epoch_count = 0

    # --- what happens -------------------------------------------------------------------------------------------------

    def about_to_change(self, group: ConsumerGroup | None) -> None:
        """What members hold is compared with what they hold afterwards."""
        if group is not None and group.id not in self._under_way:
            self._before[group.id] = {topic_id: dict(owners) for topic_id, owners in group.owners.items()}

    def bumped(self, group: ConsumerGroup, cause: Cause) -> None:
        """The group's epoch is another one."""
        self.epoch_count += 1
        open_ = self._under_way.get(group.id)
        if open_ is None:
            record = self._recorder.new_record(cause)
            record.is_newer = True
            open_ = _UnderWay(record, self._effects.clock_ms, self._before.pop(group.id, {}))
            self._under_way[group.id] = open_
            self._recorder.show(group.id, record)
        else:
            open_.record.note(cause)
            open_.unsettled = None
        open_.record.generation, open_.record.members = group.epoch, len(group.members)
        if not group.members:
            self._close(group, open_, "empty: nobody is left")

    def went(self, group: ConsumerGroup, members: Sequence[ConsumerMember], why: Kind, words: str) -> None:
        """They are no members any more, unless that could not be written."""
        if members and not any(each.id in group.members for each in members):
            words = f"and {len(members) - 1} more" if len(members) > 1 else words
            self.bumped(group, cause_by(members[0], why, words))

    def aiming(self, group: ConsumerGroup) -> None:
        """A target is due. Where nobody said why, the topics that it reads have changed, by name or by regular expression, or another
        coordinator knew."""
        if group.id not in self._under_way:
            self.about_to_change(group)
            self.bumped(group, Cause(Kind.TOPICS))

    def aimed(self, group: ConsumerGroup) -> None:
        """There is a target for its epoch."""
        open_ = self._under_way.get(group.id)
        if open_ is None:
            return
        open_.aimed_ms = self._effects.clock_ms
        open_.record.joining_ms = open_.aimed_ms - open_.begun_ms
        open_.record.members = len(group.members)
        open_.unsettled = {each.id for each in group.members.values() if not group.is_settled(each)}
        self._close_if_settled(group, open_)

    def came(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """It made a step towards its target."""
        open_ = self._under_way.get(group.id)
        if open_ is None or open_.unsettled is None or not group.is_settled(member):
            return
        open_.unsettled.discard(member.id)
        open_.record.last_joined = cut(member.id)
        open_.record.last_joined_ms = self._effects.clock_ms - open_.begun_ms
        self._close_if_settled(group, open_)

    def _close_if_settled(self, group: ConsumerGroup, open_: _UnderWay) -> None:
        if not open_.unsettled:
            open_.record.assigning_ms = self._effects.clock_ms - open_.aimed_ms
            self._close(group, open_, "stable")

    def _close(self, group: ConsumerGroup, open_: _UnderWay, outcome: str) -> None:
        del self._under_way[group.id]
        record = open_.record
        record.protocol = next(iter(group.assignors), "")
        record.outcome = outcome
        if max(map(_count, (open_.before, group.owners))) <= COMPARED_PARTITIONS_MAX:
            record.compare(self._named(open_.before), self._named(group.owners))
        self._recorder.keep(group.id, record)

    def _named(self, owners: Owners) -> dict[Place, str]:
        return {
            Place(self._topics.name_of(topic_id) or "", each): member
            for topic_id, partitions in owners.items()
            for each, member in partitions.items()
        }

    def forget(self, group_id: str) -> None:
        self._before.pop(group_id, None)
        self._under_way.pop(group_id, None)

    # --- what is told -------------------------------------------------------------------------------------------------

    def waits_for(self, group: ConsumerGroup) -> list[str]:
        """Members that have not come to the target."""
        if group.epoch > group.assignment_epoch:
            return []
        return [each.id for each in group.members.values() if not group.is_settled(each)]


def _count(owners: Owners) -> int:
    return sum(map(len, owners.values()))


def cause_by(member: ConsumerMember, kind: Kind, words: str = "") -> Cause:
    return Cause(kind, member.id, member.client_id, member.client_host, words)
