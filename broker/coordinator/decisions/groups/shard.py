"""The groups of one partition of `__consumer_offsets`: loaded by replaying it, and from then on changed by what it is asked."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ottla.broker.coordinator.decisions.effects import Record, TransactionalEffects, Undo
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.commit_rates import CommitRates
from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset
from ottla.broker.coordinator.decisions.groups.consumer.departures import Departures
from ottla.broker.coordinator.decisions.groups.consumer.describing import described_consumers, no_consumer_group
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.heartbeats import Heartbeats
from ottla.broker.coordinator.decisions.groups.consumer.patterns import Patterns
from ottla.broker.coordinator.decisions.groups.consumer.recorder import ConsumerRecorder
from ottla.broker.coordinator.decisions.groups.consumer.steps import Steps
from ottla.broker.coordinator.decisions.groups.consumer.targets import preferred_assignor
from ottla.broker.coordinator.decisions.groups.consumer.times import OwnSettings, Times
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics
from ottla.broker.coordinator.decisions.groups.counts import GroupCounts
from ottla.broker.coordinator.decisions.groups.endings import Endings
from ottla.broker.coordinator.decisions.groups.group_records import (
    read,
    restored_group,
    restored_offset,
)
from ottla.broker.coordinator.decisions.groups.joining import Joins
from ottla.broker.coordinator.decisions.groups.kinds import AnyGroup
from ottla.broker.coordinator.decisions.groups.memberships import Memberships
from ottla.broker.coordinator.decisions.groups.migration.emulation import Emulation
from ottla.broker.coordinator.decisions.groups.migration.migrations import NO_CONSUMERS, Migrations
from ottla.broker.coordinator.decisions.groups.offset_store import OffsetStore, Place
from ottla.broker.coordinator.decisions.groups.offsets import Offsets, Topics
from ottla.broker.coordinator.decisions.groups.rebalance import Rebalance
from ottla.broker.coordinator.decisions.groups.rebalance_record import Cause, Kind
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.coordinator.decisions.groups.transactional_commits import TransactionalCommits
from ottla.broker.wire.messages.consumer_group_describe_response import DescribedGroup
from ottla.broker.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.broker.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.broker.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.broker.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.broker.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.runtime.errors import ErrorCode

NO_PRODUCER = -1
GROUPS_A_TURN = 100
"""So many are restored at once, or ended."""


class AllTopics(Topics, GroupTopics, Protocol):
    """Everything that is asked about the topics there are."""


class GroupShard:
    """What is written is in ``written`` and ``offsets``; members that join, wait and are alive are known to this coordinator
    alone."""

    def __init__(
        self,
        effects: TransactionalEffects,
        settings: GroupSettings,
        topics: AllTopics,
        own_settings: OwnSettings = lambda group_id: {},
    ) -> None:
        """``own_settings``: what was set for a group alone."""
        self._effects = effects
        self._settings = settings
        self._topics = topics
        self._groups: dict[str, ClassicGroup] = {}
        self.written: dict[str, GroupMetadataValue] = {}
        """The generations as their records say them."""
        self.offsets = OffsetStore()
        self.rates = CommitRates()
        self._is_loaded = False
        self._commit_count = self._removal_count = 0
        self.rebalance = Rebalance(effects, settings)
        self.consumers = ConsumerGroups(self._displace)
        self._recorder = ConsumerRecorder(effects, topics, self.rebalance.recorder)
        times = Times(settings, own_settings)
        departures = Departures(
            effects,
            times,
            topics,
            self.consumers,
            lambda group_id: migrations.shrunk(group_id),
            self._recorder,
        )
        migrations = Migrations(
            effects, settings, topics, self, self.consumers, self.rebalance, departures, self._recorder
        )
        self._migrations = migrations
        self.patterns = Patterns(effects, settings, topics, self.consumers)
        steps = Steps(
            effects, settings, times, topics, self.consumers, departures.sessions, self.patterns, self._recorder
        )
        emulation = Emulation(effects, topics, self.consumers, steps, departures)
        self.joins = Joins(effects, settings, self.rebalance, self._find_or_make, migrations.admit_classic, emulation)
        self.members = Memberships(effects, self.rebalance, self.find, emulation)
        self.heartbeats = Heartbeats(effects, settings, times, self.consumers, departures, steps, migrations.make_way)
        self.commits = Offsets(
            effects, settings, topics, self.offsets, self.rebalance, self._find_or_make, self.consumers
        )
        self.transactional = TransactionalCommits(effects, settings, topics, self._find_or_make, self.consumers)
        self._endings = Endings(effects, self, self.commits, self.offsets)

    def find(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def _find_or_make(self, group_id: str, makes: bool) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        if group is None and makes:
            group = self._groups[group_id] = ClassicGroup(group_id, self._effects.time_ms)
        return group

    def groups(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    def any(self, group_id: str) -> AnyGroup | None:
        """Of either protocol."""
        return self.consumers.find(group_id) or self._groups.get(group_id)

    def all(self) -> Iterator[AnyGroup]:
        yield from self._groups.values()
        yield from self.consumers

    def described_consumers(self, group_id: str) -> DescribedGroup:
        group = self.consumers.find(group_id)
        if group is None:
            return no_consumer_group(group_id, is_other_kind=group_id in self._groups)
        assignor = preferred_assignor(group.assignors, self._settings.consumer_assignors)
        return described_consumers(group, assignor, self._topics)

    # --- from one protocol to the other -------------------------------------------------------------------------------

    def put(self, group: ClassicGroup) -> None:
        self._groups[group.id] = group

    def drop(self, group_id: str) -> ClassicGroup | None:
        return self._groups.pop(group_id, None)

    def is_written(self, group_id: str) -> bool:
        return group_id in self.written

    def _displace(self, group_id: str) -> Undo:
        """It is a consumer group from now on."""
        group = self._groups.pop(group_id, None)

        def undo() -> None:
            if group is not None:
                self._groups[group_id] = group

        return undo

    # --- replay -------------------------------------------------------------------------------------------------------

    def replay(self, record: Record, place: int, producer_id: int = NO_PRODUCER) -> Undo:
        """Follows a record, in order; what it did can be undone as long as nothing came after it. ``place``: higher than that of
        the records before. ``producer_id``: of the transaction that it is part of. Raises WireError for a record that cannot be
        read."""
        meaning = read(record)
        if meaning is None:
            return nothing
        key, value = meaning
        if isinstance(key, OffsetCommitKey):
            return self._replay_offset(key, value, place, producer_id)
        if isinstance(key, GroupMetadataKey):
            return self._replay_group(key.group, value)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            self._forget_history(key.group_id)
        return self.consumers.replay(key, value)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> Undo:
        """A live group is ahead of its record; only one that is no more follows it."""
        written, group = self.written.pop(group_id, None), None
        if value is None:
            group = self._groups.pop(group_id, None)
            self._forget_history(group_id)
        else:
            self.written[group_id] = value

        def undo() -> None:
            self.written.pop(group_id, None)
            if written is not None:
                self.written[group_id] = written
            if group is not None:
                made = self._groups.setdefault(group_id, group)
                made.generation = max(made.generation, group.generation)  # somebody may have asked for it meanwhile

        return undo

    def _replay_offset(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | CommittedOffset | None,
        record_place: int,
        producer_id: int,
    ) -> Undo:
        place = Place(key.topic, key.partition)
        if value is None:
            self._removal_count += self._is_loaded
            return self.offsets.remove(key.group, place)
        committed = restored_offset(value)
        if self._is_loaded:
            self._commit_count += 1
            self.rates.note(key.group, place, committed)
        if producer_id == NO_PRODUCER:
            return self.offsets.put(key.group, place, committed, record_place)
        return self.offsets.put_pending(producer_id, key.group, place, committed, record_place)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a transaction was read."""
        self.offsets.end_transaction(producer_id, is_commit)

    # --- begin and end ------------------------------------------------------------------------------------------------

    def begin(self) -> Iterator[None]:
        """All is replayed: members of the last generation have a session's time to be heard from."""
        self._is_loaded = True
        return self._begin()

    def _begin(self) -> Iterator[None]:
        for count, (group_id, value) in enumerate(list(self.written.items()), 1):
            if self.consumers.find(group_id) is not None:
                continue  # no node writes that; the newer protocol's records say more
            group = self._groups[group_id] = restored_group(group_id, value)
            for member in group.members.values():
                self.rebalance.keep(group, member)
            if len(group.members) > self._settings.max_size:
                words = f"group.max.size={self._settings.max_size}"
                self.rebalance.prepare(group, Cause(Kind.SIZE, words=words))
            elif group.members and group.leader_id is None:
                self.rebalance.prepare(group, Cause(Kind.PROTOCOL, words=NO_CONSUMERS))
            if not count % GROUPS_A_TURN:
                yield
        for count, group_id in enumerate(list(self.offsets.group_ids()), 1):
            self._find_or_make(group_id, self.consumers.find(group_id) is None)
            if not count % GROUPS_A_TURN:
                yield
        yield from self.heartbeats.begin()
        yield from self.patterns.begin()
        yield from self._migrations.begin()

    def end(self, error: ErrorCode) -> Iterator[None]:
        """The coordinator is another one now, or none: whoever waits is told. To forget many groups takes time too."""
        groups, self._groups = self._groups, {}
        return self._end(groups, error)

    def _end(self, groups: dict[str, ClassicGroup], error: ErrorCode) -> Iterator[None]:
        for count, group_id in enumerate(list(groups), 1):
            self.rebalance.end(groups.pop(group_id), error)
            self.written.pop(group_id, None)
            self.offsets.forget(group_id)
            if not count % GROUPS_A_TURN:
                yield
        yield from self.patterns.end()
        yield from self.heartbeats.end()

    # --- groups come to their end -------------------------------------------------------------------------------------

    def delete(self, group_ids: Iterable[str], told: Callable[[dict[str, ErrorCode]], None]) -> None:
        """Groups without members, with their offsets; told once that is committed."""
        self._endings.delete(group_ids, told)

    def expire(self) -> None:
        """Removes offsets that have expired, and groups that have neither offsets nor members: some now, the rest soon."""
        self._endings.expire()

    def forget(self, group_id: str) -> bool:
        """A group that no record ever spoke of, or that none speaks of any more."""
        is_written = group_id in self.written or self.consumers.find(group_id) is not None
        if is_written or any(True for _ in self.offsets.of_group(group_id)):
            return False
        self._groups.pop(group_id, None)
        self._forget_history(group_id)
        return True

    def _forget_history(self, group_id: str) -> None:
        self.rebalance.recorder.forget(group_id)
        self._recorder.forget(group_id)
        self.rates.forget(group_id)

    # --- for people ---------------------------------------------------------------------------------------------------

    def history(self, group_id: str) -> list[bytes]:
        """Whom the group waits for, and its last rebalances, the oldest first; as text."""
        recorder, newer = self.rebalance.recorder, self.consumers.find(group_id)
        waits_for = self._recorder.waits_for(newer) if newer is not None else recorder.waits_for(self.find(group_id))
        return [recorder.now(waits_for), *recorder.told(group_id)]

    # --- for metrics --------------------------------------------------------------------------------------------------

    def counts(self) -> GroupCounts:
        expired = self._endings.expired_count
        rebalances, epochs = self.rebalance.recorder.generation_count, self._recorder.epoch_count
        return GroupCounts(self._commit_count, expired, self._removal_count - expired, rebalances, epochs)

    # --- for proofs ---------------------------------------------------------------------------------------------------

    def contents(self) -> tuple[object, ...]:
        """Everything that its partition says, to be compared with another's that replayed it."""
        return self.written, self.offsets.contents(), self.consumers.contents()


def nothing() -> None:
    """Undoes nothing."""
