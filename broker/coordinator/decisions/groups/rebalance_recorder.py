"""The rebalance recorder: listens to the rebalances of classic groups, and keeps what they were about.

It decides nothing, and nothing depends on it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ottla.broker.coordinator.decisions.effects import Effects
from ottla.broker.coordinator.decisions.groups.assignments import assigned_partitions
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.embedded_protocol import CONSUMER, Partitions
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.coordinator.decisions.groups.offset_store import Place
from ottla.broker.coordinator.decisions.groups.rebalance_history import RebalanceHistory
from ottla.broker.coordinator.decisions.groups.rebalance_line import line_of
from ottla.broker.coordinator.decisions.groups.rebalance_record import (
    Cause,
    Kind,
    RebalanceRecord,
    cut,
    cut_all,
    encoded,
)

COMPARED_BYTES_MAX = 128 << 10
COMPARED_MAX = 800
"""Of assignments, before and after: to take one apart costs some 8 us, and everybody's requests wait."""
COMPARED_PARTITIONS_MAX = 5_000
"""Before, or after: so many take 5 ms, and 128 kB have 32,000."""
_ONLY_JOINING = (Kind.METADATA, Kind.HANDED_BACK)
"""While members are waited for, one that joins as it was is what is waited for."""


class _Open:
    """A rebalance that goes on."""

    __slots__ = ("before", "begun_ms", "joined_ms", "record")

    def __init__(self, record: RebalanceRecord, begun_ms: int, before: Mapping[str, bytes]) -> None:
        self.record, self.begun_ms, self.joined_ms, self.before = record, begun_ms, begun_ms, before


class RebalanceRecorder:
    """For all groups of a shard. `history` is what is over."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._open: dict[str, _Open] = {}
        self._before: dict[str, dict[str, bytes]] = {}
        """The assignments of groups that are about to rebalance."""
        self._shown: dict[str, RebalanceRecord] = {}
        """Of other protocols, those that go on."""
        self.history = RebalanceHistory()
        self.begun_count = self.generation_count = 0

    # --- what happens -------------------------------------------------------------------------------------------------

    def about_to_change(self, group: ClassicGroup) -> None:
        """A member goes, or a rebalance begins: what it had is compared with what others get."""
        if group.is_in(GroupState.STABLE) and group.id not in self._before:
            self._before[group.id] = {each.id: each.assignment for each in group.members.values()}

    def begun(self, group: ClassicGroup, cause: Cause) -> None:
        self.about_to_change(group)
        overtaken = self._open.pop(group.id, None)
        before: Mapping[str, bytes] = self._before.pop(group.id, {})
        if overtaken is not None:
            before = overtaken.before
            self._end(group.id, overtaken, "overtaken by another rebalance")
        record = self.new_record(cause)
        self._open[group.id] = opened = _Open(record, self._effects.clock_ms, before)
        self._joins(opened, cause)

    def went_on(self, group: ClassicGroup, cause: Cause) -> None:
        """While members are waited for somebody else came, changed or left."""
        opened = self._open.get(group.id)
        if opened is None:
            return
        self._joins(opened, cause)
        if cause.kind not in _ONLY_JOINING:
            opened.record.note(cause)

    def _joins(self, opened: _Open, cause: Cause) -> None:
        if cause.kind not in (Kind.LEAVE, Kind.SESSION, Kind.UNSYNCED, Kind.UNWRITTEN, Kind.SIZE):
            opened.record.last_joined = cut(cause.member_id)
            opened.record.last_joined_ms = self._effects.clock_ms - opened.begun_ms

    def expelled(self, group: ClassicGroup, absent: Iterable[Member]) -> None:
        """Who did not join in time."""
        opened = self._open.get(group.id)
        if opened is not None:
            names = [each.id for each in absent]
            opened.record.absent, opened.record.absent_count = cut_all(names), len(names)

    def generation_begun(self, group: ClassicGroup) -> None:
        self.generation_count += bool(group.members)
        opened = self._open.get(group.id)
        if opened is None:
            return
        opened.joined_ms, record = self._effects.clock_ms, opened.record
        record.joining_ms = opened.joined_ms - opened.begun_ms
        record.generation, record.members = group.generation, len(group.members)
        record.protocol, record.leader = cut(group.protocol or ""), cut(group.leader_id or "")
        if not group.members:
            self._close(group, opened, "empty: nobody is left")

    def assigned(self, group: ClassicGroup) -> None:
        """The assignment is committed."""
        opened = self._open.get(group.id)
        if opened is not None:
            opened.record.assigning_ms = self._effects.clock_ms - opened.joined_ms
            self._close(group, opened, "stable")

    def _close(self, group: ClassicGroup, opened: _Open, outcome: str) -> None:
        del self._open[group.id]
        if group.protocol_type == CONSUMER:
            _compare(opened.record, opened.before, {each.id: each.assignment for each in group.members.values()})
        self._end(group.id, opened, outcome)

    def _end(self, group_id: str, opened: _Open, outcome: str) -> None:
        opened.record.outcome = outcome
        self.keep(group_id, opened.record)

    def forget(self, group_id: str) -> None:
        """There is no such group any more."""
        self._open.pop(group_id, None)
        self._before.pop(group_id, None)
        self._shown.pop(group_id, None)
        self.history.forget(group_id)

    # --- for rebalances of any kind -----------------------------------------------------------------------------------

    def new_record(self, cause: Cause) -> RebalanceRecord:
        self.begun_count += 1
        return RebalanceRecord(number=self.begun_count, begun_ms=self._effects.time_ms, cause=cause.cut())

    def show(self, group_id: str, record: RebalanceRecord) -> None:
        """It goes on."""
        self._shown[group_id] = record

    def keep(self, group_id: str, record: RebalanceRecord) -> None:
        """It is over."""
        self._shown.pop(group_id, None)
        self._effects.note(line_of(group_id, record))
        self.history.add(group_id, encoded(record))

    # --- what is told -------------------------------------------------------------------------------------------------

    def told(self, group_id: str) -> list[bytes]:
        """The oldest first; the last may not be over."""
        opened = self._open.get(group_id)
        record = opened.record if opened is not None else self._shown.get(group_id)
        return self.history.of_group(group_id) + ([encoded(record)] if record is not None else [])

    @staticmethod
    def waits_for(group: ClassicGroup | None) -> list[str]:
        """The members that have something to do."""
        if group is not None and group.is_in(GroupState.PREPARING_REBALANCE):
            return [each.id for each in group.absent()]
        if group is not None and group.is_in(GroupState.COMPLETING_REBALANCE) and not group.is_assigned:
            return [group.leader_id or ""]
        return []

    def now(self, waits_for: list[str]) -> bytes:
        """What time it is, and whom the group waits for, as text."""
        return msgspec.json.encode(
            {
                "now_ms": self._effects.time_ms,
                "waits_for": cut_all(waits_for),
                "waits_for_count": len(waits_for),
            }
        )


def _compare(record: RebalanceRecord, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
    """What moved, of what can be read."""
    size = sum(map(len, before.values())) + sum(map(len, after.values()))
    if size > COMPARED_BYTES_MAX or len(before) + len(after) > COMPARED_MAX:
        return
    had, has = _partitions(before), _partitions(after)
    if max(map(_count, (had, has))) <= COMPARED_PARTITIONS_MAX:
        record.compare(_owners(had), _owners(has))


def _partitions(assignments: Mapping[str, bytes]) -> Mapping[str, Partitions]:
    return {member: assigned_partitions(assignment) for member, assignment in assignments.items()}


def _count(assigned: Mapping[str, Partitions]) -> int:
    return sum(len(indexes) for partitions in assigned.values() for indexes in partitions.values())


def _owners(assigned: Mapping[str, Partitions]) -> dict[Place, str]:
    return {
        Place(topic, index): member
        for member, partitions in assigned.items()
        for topic, indexes in partitions.items()
        for index in indexes
    }
