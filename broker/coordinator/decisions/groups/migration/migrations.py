"""Which protocol a group id is of, and when that changes.

A change is one write: the records of the one kind end and those of the other begin, together or not at all. What waits for an answer in
the group as it was is told to ask again.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from ottla.broker.coordinator.decisions.effects import Effects, Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.consumer.departures import Departures
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.recorder import ConsumerRecorder
from ottla.broker.coordinator.decisions.groups.consumer.records import group_tombstones
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics
from ottla.broker.coordinator.decisions.groups.embedded_protocol import CONSUMER
from ottla.broker.coordinator.decisions.groups.group_records import group_tombstone
from ottla.broker.coordinator.decisions.groups.kinds import has_ended
from ottla.broker.coordinator.decisions.groups.migration.downgrading import (
    can_be_downgraded,
    downgrade_records,
    downgraded,
)
from ottla.broker.coordinator.decisions.groups.migration.upgrading import check_room, upgraded
from ottla.broker.coordinator.decisions.groups.rebalance import Rebalance
from ottla.broker.coordinator.decisions.groups.rebalance_record import Cause, Kind
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.runtime.errors import ErrorCode, KafkaError

GROUPS_A_TURN = 1_000
"""So many are looked at at once when a shard begins."""
NO_CONSUMERS = "the last member of the consumer protocol left"
"""Why a group that has become classic rebalances."""
A_CONSUMER = "a member of the consumer protocol joined"
"""Why one that was classic does."""


class ClassicGroups(Protocol):
    """The live classic groups of the shard."""

    def find(self, group_id: str) -> ClassicGroup | None: ...

    def put(self, group: ClassicGroup) -> None: ...

    def drop(self, group_id: str) -> ClassicGroup | None: ...

    def is_written(self, group_id: str) -> bool:
        """Whether a record speaks of a classic group."""
        ...


class Migrations:
    """Of all groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        settings: GroupSettings,
        topics: GroupTopics,
        classic: ClassicGroups,
        consumers: ConsumerGroups,
        rebalance: Rebalance,
        departures: Departures,
        recorder: ConsumerRecorder,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._topics = topics
        self._classic = classic
        self._consumers = consumers
        self._rebalance = rebalance
        self._departures = departures
        self._recorder = recorder

    def begin(self) -> Iterator[None]:
        """All is replayed. A coordinator may have ended between the last leaving of its protocol and what follows."""
        for count, group in enumerate(list(self._consumers), 1):
            self.shrunk(group.id)
            if not count % GROUPS_A_TURN:
                yield

    # --- to the consumer protocol -------------------------------------------------------------------------------------

    def make_way(self, request: ConsumerGroupHeartbeatRequest) -> Sequence[Record]:
        """A member of the consumer protocol joins a group that is none: what it has to write first. A classic group with members
        becomes a consumer group here. Raises KafkaError: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, or why that could not be
        written."""
        group_id = request.group_id
        group = self._classic.find(group_id)
        if group is not None and not has_ended(group):
            self._upgrade(group, request)
            return ()
        return [group_tombstone(group_id)] if self._classic.is_written(group_id) else ()

    def _upgrade(self, group: ClassicGroup, request: ConsumerGroupHeartbeatRequest) -> None:
        if not self._settings.migration_policy.may_upgrade:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.id} is not a consumer group.")
        records = upgraded(group, self._topics, self._settings.consumer_max_size)
        check_room(group, request.member_id, request.instance_id, self._settings.consumer_max_size)
        refused = ErrorCode.NONE

        def written(error: ErrorCode) -> None:
            nonlocal refused
            refused = error
            if error and has_ended_here and self._classic.find(group.id) is group:  # it is undone
                self._rebalance.resume(group, Cause(Kind.PROTOCOL, words=f"not written: {error.name}"))

        has_ended_here = False
        self._effects.write(records, written)
        if refused:
            raise KafkaError(refused, "The group could not be converted.")
        has_ended_here = True
        self._rebalance.end(group, ErrorCode.REBALANCE_IN_PROGRESS)
        made = self._consumers.find(group.id)
        if made is None:
            return
        self._recorder.about_to_change(made)
        self._recorder.bumped(made, Cause(Kind.PROTOCOL, request.member_id, words=A_CONSUMER))
        for member in list(made.members.values()):
            self._departures.watch(group.id, member)

    # --- to the classic protocol --------------------------------------------------------------------------------------

    def admit_classic(self, group_id: str) -> ErrorCode:
        """A consumer group without members makes way for a classic one, whose offsets are needed from now on: its member may only have asked
        for an id."""
        consumers = self._consumers.find(group_id)
        if consumers is None:
            return ErrorCode.NONE
        outcome = ErrorCode.NONE

        def written(error: ErrorCode) -> None:
            nonlocal outcome
            outcome = error
            is_undone = bool(error) and self._consumers.find(group_id) is consumers
            if is_undone and (group := self._classic.drop(group_id)) is not None:
                self._rebalance.end(group, error)

        self._effects.write(group_tombstones(consumers), written)
        if not outcome:
            classic = ClassicGroup(group_id, self._effects.time_ms)
            classic.protocol_type = CONSUMER
            self._classic.put(classic)
        return outcome

    def shrunk(self, group_id: str) -> None:
        """Members have left: perhaps the last that is not classic."""
        group, settings = self._consumers.find(group_id), self._settings
        may = group is not None and settings.migration_policy.may_downgrade
        if group is None or not may or not can_be_downgraded(group, settings.max_size):
            return
        members = list(group.members.values())
        classic = downgraded(group, self._topics, self._effects.time_ms)

        def written(error: ErrorCode) -> None:
            is_undone = bool(error) and self._consumers.find(group_id) is group
            if is_undone and self._classic.find(group_id) is classic:
                self._classic.drop(group_id)
                self._rebalance.end(classic, error)
                for each in members:
                    self._departures.watch(group_id, each)

        self._effects.write(downgrade_records(group, classic), written)
        if self._consumers.find(group_id) is not None:
            return  # it was refused, and stays what it is
        for each in members:
            self._departures.sessions.forget(group_id, each.id)
        self._classic.put(classic)
        for member in classic.members.values():
            self._rebalance.keep(classic, member)
        self._rebalance.prepare(classic, Cause(Kind.PROTOCOL, words=NO_CONSUMERS))
