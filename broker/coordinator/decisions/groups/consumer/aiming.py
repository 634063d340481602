"""A group gets the target of its epoch: computed and written in pieces, of which what fits into one turn is done at once.

A large group changes meanwhile. Its target is of the epoch in which it was begun, so whatever came since makes the next one due; and
what is written names those alone that are members then. Until the last piece is written the group has the target that it had, of
which some members' parts may be newer: that gives nobody what another holds.
"""

from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.coordinator.decisions.effects import Effects, Record
from ottla.broker.coordinator.decisions.groups.assignors import Assignment
from ottla.broker.coordinator.decisions.groups.assignors.pieces import InPieces, Pace
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.consumer.recorder import ConsumerRecorder
from ottla.broker.coordinator.decisions.groups.consumer.records import target_epoch_record, target_record
from ottla.broker.coordinator.decisions.groups.consumer.targets import Plan, next_target, plan_of, preferred_assignor
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics
from ottla.broker.coordinator.decisions.groups.consumer.writes import Writes
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.runtime.errors import ErrorCode

_SAME, _WRITTEN = 0.5, 20.0
"""Steps of a member whose target is what it was, and of one who has another: a record is made, followed and appended."""

_ENDED = object()

Ended = Callable[[ErrorCode], None]


class _Course:
    """A target that is being computed, or written."""

    def __init__(self, group: ConsumerGroup, writes: Writes) -> None:
        self.group = group
        self.writes = writes
        self.epoch_changes = group.epoch_changes
        self.pace = Pace()
        self.waiting: dict[str, Ended] = {}
        """By member."""


class Aims:
    """Of all consumer groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        settings: GroupSettings,
        topics: GroupTopics,
        groups: ConsumerGroups,
        recorder: ConsumerRecorder,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._recorder = recorder
        self._under_way: dict[str, _Course] = {}

    def is_under_way(self, group: ConsumerGroup) -> bool:
        course = self._under_way.get(group.id)
        return course is not None and course.group is group

    def begin(self, group: ConsumerGroup, writes: Writes, undone: Ended) -> bool:
        """Whether it goes on; what is done now is among ``writes``. ``undone``: told what came of the rest."""
        self._recorder.aiming(group)
        course = _Course(group, writes)
        pieces = self._pieces(course)
        if next(pieces, _ENDED) is _ENDED:
            return False
        course.writes = Writes(self._effects, undone)
        before = self._under_way.get(group.id)
        self._under_way[group.id] = course
        if before is not None:  # of a group that is no more: nobody would find it where this coordinator ends
            _tell(before, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._effects.soon(partial(self._go_on, course, pieces))
        return self.is_under_way(group)

    def wait(self, group: ConsumerGroup, member_id: str, ended: Ended) -> None:
        """Until what is under way has ended, whatever came of it. With an error when this coordinator ends."""
        self._under_way[group.id].waiting[member_id] = ended

    def hear(self, group: ConsumerGroup, member_id: str) -> None:
        """It asks again, so nobody waits for the answer to what it asked before; and what it said then may not be so any more."""
        if self.is_under_way(group):
            ended = self._under_way[group.id].waiting.pop(member_id, None)
            if ended is not None:
                ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def end(self) -> None:
        """Whoever waits is told."""
        courses, self._under_way = self._under_way, {}
        for each in courses.values():
            _tell(each, ErrorCode.NOT_COORDINATOR)

    def _go_on(self, course: _Course, pieces: InPieces[None]) -> None:
        is_over = True
        try:
            is_over = next(pieces, _ENDED) is _ENDED
        finally:
            if is_over:
                if self.is_under_way(course.group):
                    del self._under_way[course.group.id]
                course.writes.close()
                _tell(course, ErrorCode.NONE)
            else:
                self._effects.soon(partial(self._go_on, course, pieces))

    def _pieces(self, course: _Course) -> InPieces[None]:
        group, pace = course.group, course.pace
        assignor = preferred_assignor(group.assignors, self._settings.consumer_assignors)
        plan = plan_of(group)
        found = yield from next_target(plan, assignor, self._topics, pace)
        if not self._counts(course, plan):
            return
        for member in plan.members:
            record = _changed(group, member, found)
            if record is not None:
                course.writes.gather(record)
            if pace.is_over(_SAME if record is None else _WRITTEN):
                course.writes.flush()
                yield
                if not self._counts(course, plan):
                    return
        course.writes.gather(target_epoch_record(group.id, plan.epoch, self._effects.time_ms))
        course.writes.flush()
        if not course.writes.error and group.epoch == plan.epoch:
            self._recorder.aimed(group)

    def _counts(self, course: _Course, plan: Plan) -> bool:
        """Whether the target may still become the group's. Not where the group has ended; nor where what it was computed from could not be
        written, for the same epoch may say something else by now: then it is due, and the next heartbeat begins anew."""
        group = course.group
        is_of_epoch = group.epoch > plan.epoch or group.epoch_changes == course.epoch_changes
        return is_of_epoch and self._groups.find(group.id) is group


def _tell(course: _Course, error: ErrorCode) -> None:
    waiting, course.waiting = course.waiting, {}
    for each in waiting.values():
        each(error)


def _changed(group: ConsumerGroup, member: ConsumerMember, found: Mapping[str, Assignment]) -> Record | None:
    """None where its target is what it was. Who is gone gets none; the process that took a static member's place meanwhile gets its
    target: that alone brings no other epoch, which would bring it another one."""
    member_id = member.id
    if member_id not in group.members:
        member_id = group.static.get(member.instance_id or "", member_id)
        if member_id not in group.members or member_id in found:
            return None
    target = found.get(member.id, {})
    return target_record(group.id, member_id, target) if target != group.targets.get(member_id) else None
