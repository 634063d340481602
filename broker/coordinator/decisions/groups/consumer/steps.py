"""What a member's request changes: the member and the group's epoch, then the target, then what the member holds.

Each is written before the next is decided upon it. After any of them another coordinator can go on: it finds a member that has not come
to its target yet. Members that speak the classic protocol take the same steps.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ottla.broker.coordinator.decisions.effects import Effects, Record
from ottla.broker.coordinator.decisions.groups.consumer.aiming import Aims
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.identities import Identity
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.patterns import Patterns
from ottla.broker.coordinator.decisions.groups.consumer.reconciliation import Aim, Owned, reconciled
from ottla.broker.coordinator.decisions.groups.consumer.recorder import ConsumerRecorder, cause_by
from ottla.broker.coordinator.decisions.groups.consumer.records import current_record, epoch_record, member_record
from ottla.broker.coordinator.decisions.groups.consumer.sessions import Sessions
from ottla.broker.coordinator.decisions.groups.consumer.subscriptions import SUBSCRIPTIONS_BYTES_MAX
from ottla.broker.coordinator.decisions.groups.consumer.targets import is_due, preferred_assignor
from ottla.broker.coordinator.decisions.groups.consumer.times import Times
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, SubscribedIds, metadata_hash
from ottla.broker.coordinator.decisions.groups.consumer.writes import Writes
from ottla.broker.coordinator.decisions.groups.rebalance_record import Kind
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.runtime.errors import ErrorCode, KafkaError

MEMBERS_MAX = 10_000
"""Of one group, whatever `group.consumer.max.size` says: a target is computed for all of them."""


class Change(NamedTuple):
    """What a member asks for."""

    identity: Identity
    member: ConsumerMember
    """As it describes itself now."""
    owned: Owned | None
    """None: it does not say it."""
    session_timeout_ms: int
    first: Sequence[Record] = ()
    """Written together with the member."""


class Moved(NamedTuple):
    """The member before it was given or lost anything, and after that."""

    before: ConsumerMember
    after: ConsumerMember


Told = Callable[[ErrorCode, Moved], None]


class Steps:
    """Of all consumer groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        settings: GroupSettings,
        times: Times,
        topics: GroupTopics,
        groups: ConsumerGroups,
        sessions: Sessions,
        patterns: Patterns,
        recorder: ConsumerRecorder,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._times = times
        self._topics = topics
        self._groups = groups
        self._sessions = sessions
        self._patterns = patterns
        self._recorder = recorder
        self._aims = Aims(effects, settings, topics, groups, recorder)

    def check_size(self, group: ConsumerGroup | None) -> None:
        """Raises KafkaError (GROUP_MAX_SIZE_REACHED)."""
        size_max = min(self._settings.consumer_max_size, MEMBERS_MAX)
        if group is not None and len(group.members) >= size_max:
            message = f"The consumer group has reached its maximum capacity of {size_max} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def check_subscription(self, group: ConsumerGroup | None, member: ConsumerMember) -> None:
        """Raises KafkaError (GROUP_MAX_SIZE_REACHED): what members subscribe to is kept in memory."""
        if group is not None and not group.subscriptions.has_room_for(member.topics):
            message = f"The members of a group may subscribe to {SUBSCRIPTIONS_BYTES_MAX} bytes of topic names in all."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def take(
        self, group_id: str, change: Change, told: Told, tells_news: Callable[[Moved], bool] = lambda moved: True
    ) -> None:
        """``told`` once: when everything is committed on which the answer stands, or with an error. The group comes to be with its first
        member. An answer that ``tells_news`` also waits for what others have written."""
        group = self._groups.find(group_id)
        moved = Moved(change.member, change.member)
        late = ErrorCode.NONE

        def ended(error: ErrorCode) -> None:
            if group is not None:
                _look_again_if(group, error)
            told(error or late, moved)

        def finish(aimed: ConsumerGroup) -> None:
            nonlocal moved
            moved = self._finish(aimed, change, writes, tells_news)
            writes.close()

        def go_on(aimed: ConsumerGroup, member: ConsumerMember, error: ErrorCode) -> None:
            """Unless the member is another one by now, or none."""
            nonlocal late
            now = aimed.members.get(member.id) if self._groups.find(group_id) is aimed else None
            if now is member and not error:
                finish(aimed)
                return
            late = error or (ErrorCode.UNKNOWN_MEMBER_ID if now is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            writes.close()

        if group is not None:
            self._aims.hear(group, change.member.id)
        writes = Writes(self._effects, ended)
        self._update(group_id, change, writes)
        group = self._groups.find(group_id)
        if group is None or writes.error:
            writes.close()
            return
        self._sessions.keep(group_id, change.member.id, change.session_timeout_ms)
        if self._aim(group, writes):
            self._aims.wait(group, change.member.id, partial(go_on, group, group.members[change.member.id]))
        else:
            finish(group)

    def _finish(
        self, group: ConsumerGroup, change: Change, writes: Writes, tells_news: Callable[[Moved], bool]
    ) -> Moved:
        moved = self._reconcile(group, change, writes)
        if tells_news(moved) and not writes.count:
            writes.write_nothing()
        if change.member.regex or change.identity.member.regex:
            self._patterns.look_at(group)
        return moved

    def refresh(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Another target for the group where one is due, and nothing for the member, who asks by itself."""
        writes = Writes(self._effects, partial(_look_again_if, group))
        self._update(group.id, Change(Identity(member), member, None, 0), writes)
        self._aim(group, writes)
        writes.close()

    # --- first step: the member and the group's epoch -----------------------------------------------------------------

    def _update(self, group_id: str, change: Change, writes: Writes) -> None:
        """Who is new or subscribes to something else makes another target due, and so do topics that changed. Member and epoch stand
        together: one without the other would be a member that is never given anything."""
        group, records = self._groups.find(group_id), [*change.first]
        before, after, is_new = change.identity.member, change.member, change.identity.is_new
        why: Kind | None = None
        if is_new or after is not before:
            records.append(member_record(group_id, after))
        bumps = is_new or _subscribes_to_other(group, before, after) or self._changes_assignor(group, before, after)
        if bumps or group is None or group.is_refresh_due:
            epoch, hash_before = (group.epoch, group.metadata_hash) if group is not None else (0, 0)
            hash_now = metadata_hash(_subscribed(group, None if is_new else before, after), self._topics)
            if bumps or hash_now != hash_before:
                records.append(epoch_record(group_id, epoch + 1, hash_now))
                why = _why(group, change, bumps=bumps)
                self._recorder.about_to_change(group)
        writes.write(records)
        if not writes.error and (now := self._groups.find(group_id)) is not None:
            now.is_refresh_due = False
            if why is not None:
                self._recorder.bumped(now, cause_by(after, why))

    def _changes_assignor(self, group: ConsumerGroup | None, before: ConsumerMember, after: ConsumerMember) -> bool:
        if group is None or before.assignor == after.assignor:
            return False
        votes = group.assignors.copy()
        votes.subtract([before.assignor] if before.assignor else ())
        votes.update([after.assignor] if after.assignor else ())
        known = self._settings.consumer_assignors
        return preferred_assignor(group.assignors, known) != preferred_assignor(votes, known)

    # --- second step: the target --------------------------------------------------------------------------------------

    def is_aim_due(self, group: ConsumerGroup) -> bool:
        """Whether its target is not that of its epoch, and may be computed."""
        due = is_due(group, self._effects.time_ms, self._times.assignment_ms(group.id))
        return due and not self._aims.is_under_way(group)

    def _aim(self, group: ConsumerGroup, writes: Writes) -> bool:
        """Whether the member has to wait: who finds that a target is due has his part of it, and nobody is in epoch 0. The others are
        told with their next heartbeats: they would all be answered in one turn."""
        if self.is_aim_due(group):
            return self._aims.begin(group, writes, partial(_look_again_if, group))
        return not group.assignment_epoch and self._aims.is_under_way(group)

    def end(self) -> None:
        """Whoever waits is told."""
        self._aims.end()

    # --- third step: what the member holds ----------------------------------------------------------------------------

    def _reconcile(self, group: ConsumerGroup, change: Change, writes: Writes) -> Moved:
        before = group.members[change.member.id]
        aim = Aim(
            group.assignment_epoch,
            group.targets.get(before.id, {}),
            SubscribedIds(group.topics_of(before), self._topics),
            partial(group.is_free_for, before.id),
        )
        after = reconciled(before, aim, change.owned)
        if after != before:
            writes.write([current_record(group.id, after)])
            self._recorder.came(group, after)
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self._sessions.await_revocation(group.id, after)
        return Moved(before, after)


def _look_again_if(group: ConsumerGroup, error: ErrorCode) -> None:
    """What was found of its topics may not be written."""
    group.is_refresh_due = group.is_refresh_due or bool(error)


def _subscribes_to_other(group: ConsumerGroup | None, before: ConsumerMember, after: ConsumerMember) -> bool:
    """Of an expression that is not resolved yet nobody knows: it asks for another target when it is."""
    if before.topics == after.topics and before.regex == after.regex:
        return False
    return group is None or group.topics_of(before) != group.topics_of(after)


def _why(group: ConsumerGroup | None, change: Change, *, bumps: bool) -> Kind:
    """The group's epoch is another one."""
    if change.identity.is_new:
        return Kind.JOIN
    if not bumps:
        return Kind.TOPICS
    is_other = _subscribes_to_other(group, change.identity.member, change.member)
    return Kind.SUBSCRIPTION if is_other else Kind.ASSIGNOR


def _subscribed(group: ConsumerGroup | None, before: ConsumerMember | None, after: ConsumerMember) -> set[str]:
    """The topics of the whole group once a member has changed."""
    if group is None:
        return set(after.topics)
    were = before.topics if before is not None else frozenset()
    return {each for each in group.readers if each not in were or group.readers[each] > 1} | after.topics
