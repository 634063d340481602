"""The rebalance of a classic group: it is prepared, members join, a generation begins, members ask for their assignment.

Who does not come in time is not a member any more. Nothing of this is written but its outcome: a coordinator that takes over
finds the last generation, and the members that were in it.
"""

from collections.abc import Hashable
from functools import partial

from ottla.broker.coordinator.decisions.effects import Asker, Effects
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.group_records import group_record
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.coordinator.decisions.groups.rebalance_record import Cause, Kind
from ottla.broker.coordinator.decisions.groups.rebalance_recorder import RebalanceRecorder
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from ottla.broker.wire.messages.sync_group_response import SyncGroupResponse
from ottla.runtime.errors import ErrorCode

_NULL_NAMES_FROM = 7
_ABSENT_MS = 1_000
"""At least so long between two looks whether static members are back; their clients may say that they need no time at all."""


class Rebalance:
    """For all classic groups of a shard."""

    def __init__(self, effects: Effects, settings: GroupSettings) -> None:
        self._effects = effects
        self._settings = settings
        self.recorder = RebalanceRecorder(effects)

    # --- preparing ----------------------------------------------------------------------------------------------------

    def go_on(self, group: ClassicGroup, cause: Cause) -> None:
        """Somebody joined, changed or left: a rebalance begins, or one that is being prepared may be complete."""
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY):
            self.prepare(group, cause)
        else:
            self.recorder.went_on(group, cause)
            self.complete_if_joined(group)

    def prepare(self, group: ClassicGroup, cause: Cause) -> None:
        """All members are to join again: their heartbeats tell them."""
        effects = self._effects
        self.recorder.begun(group, cause)
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.refuse_syncing(group, ErrorCode.REBALANCE_IN_PROGRESS)
        effects.forget(_sync_deadline(group))
        is_first = group.is_in(GroupState.EMPTY)
        group.change(GroupState.PREPARING_REBALANCE, effects.time_ms)
        if is_first:
            self._wait_for_first(group)
        elif group.has_all_joined:
            self._complete(group)
        else:
            self._wait_for_all(group, group.rebalance_timeout_ms)

    def complete_if_joined(self, group: ClassicGroup) -> None:
        """A first rebalance waits for its delay although all that are known have joined."""
        is_first = group.state_before is GroupState.EMPTY
        if group.is_in(GroupState.PREPARING_REBALANCE) and not is_first and group.has_all_joined:
            self._complete(group)

    def _wait_for_first(self, group: ClassicGroup) -> None:
        delay_ms = self._settings.initial_rebalance_delay_ms
        self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        """Members of a new group start together: one rebalance for all of them (KIP-134)."""

        def look() -> None:
            if group.joined_meanwhile and left_ms:
                group.joined_meanwhile = False
                next_ms = min(self._settings.initial_rebalance_delay_ms, left_ms)
                self._wait_for_more(group, next_ms, max(left_ms - next_ms, 0))
            else:
                self._complete(group)

        group.joined_meanwhile = False
        self._effects.remind(_join_deadline(group), delay_ms, look)

    def _wait_for_all(self, group: ClassicGroup, timeout_ms: int) -> None:
        self._effects.remind(_join_deadline(group), timeout_ms, partial(self._complete, group))

    # --- a generation begins ------------------------------------------------------------------------------------------

    def _complete(self, group: ClassicGroup) -> None:
        """Without those that did not come; a static one is kept until its session ends."""
        effects = self._effects
        effects.forget(_join_deadline(group))
        late = [each for each in group.absent() if each.instance_id is None]
        self.recorder.expelled(group, late)
        for member in late:
            self.remove(group, member.id)
        if group.members and not group.elect_leader():
            # Only static members, none of which came: their sessions will end.
            self._wait_for_all(group, max(group.rebalance_timeout_ms, _ABSENT_MS))
            return
        group.begin_generation(effects.time_ms)
        self.recorder.generation_begun(group)
        if not group.members:
            # The generation must not be given again. If it cannot be written, the next one that is will be higher.
            effects.write([group_record(group, {})], lambda _: None)
            return
        group.unsynced = set(group.members)
        joining, group.joining = group.joining, {}
        for member in group.members.values():
            member.is_new = False
            self.keep(group, member)
        for member_id, asker in joining.items():
            asker.answer(self.joined(group, member_id, asker.version))
        effects.remind(
            _sync_deadline(group),
            group.rebalance_timeout_ms,
            partial(self._expel_unsynced, group, group.generation),
        )

    def joined(self, group: ClassicGroup, member_id: str, version: int) -> JoinGroupResponse:
        """The generation there is, for one of its members. Only the leader is told of the others."""
        is_leader = member_id == group.leader_id
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader_id or "",
            member_id=member_id,
            members=self.told_to_leader(group) if is_leader else [],
        )

    @staticmethod
    def told_to_leader(group: ClassicGroup) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(each.id, each.instance_id, each.metadata(group.protocol))
            for each in group.members.values()
        ]

    # --- assignments --------------------------------------------------------------------------------------------------

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """It asked for its assignment, as all have to in time."""
        group.unsynced.discard(member_id)
        if not group.unsynced:
            self._effects.forget(_sync_deadline(group))

    def answer_syncing(self, group: ClassicGroup) -> None:
        """The assignments are known."""
        syncing, group.syncing = group.syncing, {}
        for member_id, asker in syncing.items():
            member = group.members[member_id]
            self.keep(group, member)
            asker.answer(assigned(group, member))

    def refuse_syncing(self, group: ClassicGroup, error: ErrorCode) -> None:
        """There will be none in this generation."""
        syncing, group.syncing = group.syncing, {}
        for member in group.members.values():
            member.assignment = b""
        for member_id, asker in syncing.items():
            self.keep(group, group.members[member_id])
            asker.answer(SyncGroupResponse(error_code=error))

    def _expel_unsynced(self, group: ClassicGroup, generation: int) -> None:
        if generation != group.generation or not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = [each for each in group.members if each in group.unsynced]
        for member_id in late:
            self.remove(group, member_id)
        if late:
            self.prepare(group, Cause(Kind.UNSYNCED, late[0], words=f"{len(late)} in all" if len(late) > 1 else ""))

    # --- sessions -----------------------------------------------------------------------------------------------------

    def keep(self, group: ClassicGroup, member: Member) -> None:
        """It was heard from: its session begins anew. Costs no timer: the one that waits looks when it is due."""
        self._keep(group, member, member.session_timeout_ms)

    def keep_new(self, group: ClassicGroup, member: Member) -> None:
        """It does not know its id yet: if its client is gone nobody would ever know, so it may not wait for ever."""
        self._keep(group, member, self._settings.new_member_join_timeout_ms)

    def _keep(self, group: ClassicGroup, member: Member, timeout_ms: int) -> None:
        clock_ms, expired_ms = self._effects.clock_ms, member.expires_ms
        member.expires_ms = clock_ms + timeout_ms
        if not clock_ms < expired_ms <= member.expires_ms:
            self._watch(group, member)

    def _watch(self, group: ClassicGroup, member: Member) -> None:
        left_ms = member.expires_ms - self._effects.clock_ms
        self._effects.remind(_session(group, member.id), left_ms, partial(self._look_for, group, member, member.id))

    def _look_for(self, group: ClassicGroup, member: Member, member_id: str) -> None:
        if group.members.get(member_id) is not member:
            return
        waits = (member_id in group.joining and not member.is_new) or member_id in group.syncing
        if waits:  # for us; its session begins anew with our answer
            member.expires_ms = 0
        elif member.expires_ms > self._effects.clock_ms:
            self._watch(group, member)
        else:
            self.remove(group, member_id)
            self.go_on(group, cause_of(Kind.SESSION, member, f"not heard from for {member.session_timeout_ms} ms"))

    # --- leaving ------------------------------------------------------------------------------------------------------

    def remove(self, group: ClassicGroup, member_id: str) -> Member | None:
        """A new member may be removed while its request waits: it is told to join as another."""
        if member_id in group.members:
            self.recorder.about_to_change(group)
        self._effects.forget(_session(group, member_id))
        self.refuse(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return group.remove(member_id)

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        """Nobody of that id is a member any more."""
        self._effects.forget(_session(group, member_id))

    def refuse(self, group: ClassicGroup, member_id: str, error: ErrorCode) -> None:
        """Answers what the member waits for."""
        joining, syncing = group.joining.pop(member_id, None), group.syncing.pop(member_id, None)
        if joining is not None:
            joining.answer(join_refused(joining, member_id, error))
        if syncing is not None:
            syncing.answer(SyncGroupResponse(error_code=error))

    def await_pending(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """An id was given: its owner joins with it, or the rebalance goes on without."""

        def look() -> None:
            if member_id in group.pending:
                group.pending.discard(member_id)
                self.complete_if_joined(group)

        self._effects.remind(_session(group, member_id), timeout_ms, look)

    def resume(self, group: ClassicGroup, cause: Cause) -> None:
        """The group was ended, and is here again: whoever waited was told, so all are to join again."""
        group.pending.clear()
        for member in group.members.values():
            member.is_new, member.expires_ms = False, 0
            self.keep(group, member)
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.state_before is GroupState.EMPTY:
            self._wait_for_first(group)
        elif group.is_in(GroupState.PREPARING_REBALANCE):
            self._wait_for_all(group, group.rebalance_timeout_ms)
        else:
            self.prepare(group, cause)

    def end(self, group: ClassicGroup, error: ErrorCode) -> None:
        """The group is not here any more: whoever waits is told, and no timer of it is left."""
        for member_id in [*group.members, *group.pending]:
            self._effects.forget(_session(group, member_id))
            self.refuse(group, member_id, error)
        self._effects.forget(_join_deadline(group))
        self._effects.forget(_sync_deadline(group))


def cause_of(kind: Kind, member: Member, words: str = "") -> Cause:
    return Cause(kind, member.id, member.client_id, member.client_host, words)


def join_refused(asker: Asker, member_id: str, error: ErrorCode) -> JoinGroupResponse:
    name = None if asker.version >= _NULL_NAMES_FROM else ""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=name)


def assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def _join_deadline(group: ClassicGroup) -> Hashable:
    return "join", group.id


def _sync_deadline(group: ClassicGroup) -> Hashable:
    return "sync", group.id


def _session(group: ClassicGroup, member_id: str) -> Hashable:
    return "session", group.id, member_id
