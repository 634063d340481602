"""A consumer group as its records say it (kraft.md 5.3). It is changed by replaying them, and by nothing else."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from functools import partial

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.effects import Undo
from ottla.broker.coordinator.decisions.groups.assignors import Assignment
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, Held, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.subscriptions import Subscriptions
from ottla.broker.coordinator.decisions.groups.regexes.resolution import Resolved

TopicReaders = dict[str, set[str]]
"""Group ids by the topic that their members subscribe to; of all groups of a shard."""


class ConsumerGroupState(Enum):
    """Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """Members, the target of each, and who holds which partition.

    Three epochs: the group's counts changes of members, subscriptions and topics; the target's says for which of them the target
    was computed; a member's says to which it has come.
    """

    def __init__(self, group_id: str, index: TopicReaders) -> None:
        self.id = group_id
        self.epoch = 0
        self.epoch_changes = 0
        """How often it became another one here, also by being undone: the same number may come to mean something else."""
        self.metadata_hash = 0
        """Of the topics that it subscribes to, as they were at its epoch."""
        self.assignment_epoch = 0
        self.assignment_time_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.readers: Counter[str] = Counter()
        """How many members and expressions subscribe to a topic."""
        self.regexes: Counter[str] = Counter()
        """How many members subscribe with a regular expression."""
        self.resolved: dict[str, Resolved] = {}
        """What expressions mean, also those that nobody needs any more. Their topics are among those that are read."""
        self.owners: dict[bytes, dict[int, str]] = {}
        """Who holds a partition, or has not said yet that it gave it up, by topic id."""
        self.assignors: Counter[str] = Counter()
        """How many members ask for each."""
        self.subscriptions = Subscriptions()
        self._index = index

        self.is_refresh_due = True
        """Its topics may be others than those of its hash. Known to this coordinator alone."""
        self.emptied_ms = 0
        """When its last member left, by the time of day, as far as this coordinator knows: no record says it."""

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.is_settled(each) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def is_settled(self, member: ConsumerMember) -> bool:
        """Whether it has come to the target."""
        return member.state is MemberState.STABLE and member.epoch == self.assignment_epoch

    @property
    def topics(self) -> Iterator[str]:
        """That somebody subscribes to."""
        return iter(self.readers)

    # --- members ------------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> Undo:
        before = self.members.get(member.id)
        topics = self.subscriptions.same(member.topics)
        if topics is not member.topics:
            member = replace(member, topics=topics)
        self._change(before, member)
        if before is None:
            return partial(self._change, member, None)
        return partial(self._change, member, before)

    def remove(self, member_id: str) -> Undo:
        before = self.members.get(member_id)
        self._change(before, None)
        return partial(self._change, None, before)

    def _change(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Costs what it holds and subscribes to, not how many members there are. What it has as before is left alone: where a log is read in
        parts, of which only the last record of a key is replayed, another may have it already though this one seems to."""
        if before is not None and after is None:
            del self.members[before.id]
        if after is not None:
            self.members[after.id] = after
        if before is None or after is None or before.instance_id != after.instance_id:
            self._name(before, after)
        self._subscribe(before, after)
        if before is not None and after is not None and _hold_the_same(before, after):
            return
        if before is not None:
            self._release(before.assigned, before.id)
            self._release(before.revoking, before.id)
        if after is not None:
            self._hold(after.assigned, after.id)
            self._hold(after.revoking, after.id)

    def _name(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is not None and before.instance_id is not None and self.static.get(before.instance_id) == before.id:
            del self.static[before.instance_id]
        if after is not None and after.instance_id is not None:
            self.static[after.instance_id] = after.id

    def _subscribe(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is not None and before.assignor:
            _count_down(self.assignors, before.assignor)
        if after is not None and after.assignor:
            self.assignors[after.assignor] += 1
        if before is not None and before.regex:
            _count_down(self.regexes, before.regex)
        if after is not None and after.regex:
            self.regexes[after.regex] += 1
        were = before.topics if before is not None else frozenset()
        are = after.topics if after is not None else frozenset()
        if before is not None:
            self.subscriptions.remove(were)
        if after is not None:
            self.subscriptions.add(are)
        if were != are:
            self._read(were, are)

    def _read(self, were: frozenset[str], are: frozenset[str]) -> None:
        for topic in are - were:
            self.readers[topic] += 1
            self._index.setdefault(topic, set()).add(self.id)
        for topic in were - are:
            _count_down(self.readers, topic)
            if topic not in self.readers:
                self._unindex(topic)

    def _unindex(self, topic: str) -> None:
        groups = self._index.get(topic, set())
        groups.discard(self.id)
        if not groups:
            self._index.pop(topic, None)

    def _hold(self, held: Held, member_id: str) -> None:
        for topic_id, partitions in held.items():
            self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, held: Held, member_id: str) -> None:
        for topic_id, partitions in held.items():
            owners = self.owners.get(topic_id, {})
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.owners.pop(topic_id, None)

    def is_free_for(self, member_id: str, topic_id: bytes, partition: int) -> bool:
        """Whether nobody else holds it."""
        return self.owners.get(topic_id, {}).get(partition, member_id) == member_id

    # --- regular expressions ------------------------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """That it subscribes to, by name and by expression."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def resolve(self, regex: str, resolved: Resolved | None) -> Undo:
        """None: nobody needs it any more."""
        before = self.resolved.get(regex)
        self._set_resolved(regex, resolved)
        return partial(self._set_resolved, regex, before)

    def _set_resolved(self, regex: str, resolved: Resolved | None) -> None:
        before = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
        self._read(before.topics if before else frozenset(), resolved.topics if resolved else frozenset())

    # --- the rest of its records --------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int, metadata_hash: int) -> Undo:
        undo = partial(self._set_epoch, self.epoch, self.metadata_hash)
        self._set_epoch(epoch, metadata_hash)
        return undo

    def _set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash
        self.epoch_changes += 1

    def finish_target(self, epoch: int, time_ms: int) -> Undo:
        before = self.assignment_epoch, self.assignment_time_ms

        def undo() -> None:
            self.assignment_epoch, self.assignment_time_ms = before

        self.assignment_epoch, self.assignment_time_ms = epoch, time_ms
        return undo

    def aim(self, member_id: str, target: Assignment | None) -> Undo:
        """None: it has none any more."""
        before = self.targets.get(member_id)
        self._set_target(member_id, target)
        return partial(self._set_target, member_id, before)

    def _set_target(self, member_id: str, target: Assignment | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def hide(self) -> None:
        """It is not among its shard's groups any more."""
        for topic in self.readers:
            self._unindex(topic)

    def show(self) -> None:
        for topic in self.readers:
            self._index.setdefault(topic, set()).add(self.id)

    def contents(self) -> tuple[object, ...]:
        """What its records say, and what follows from it."""
        return (
            (self.epoch, self.metadata_hash, self.assignment_epoch, self.assignment_time_ms),
            self.members,
            self.targets,
            self.static,
            self.readers,
            self.regexes,
            self.resolved,
            self.owners,
        )


def _hold_the_same(one: ConsumerMember, other: ConsumerMember) -> bool:
    return one.assigned == other.assigned and one.revoking == other.revoking


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]
