"""JoinGroup (11): who may become or stay a member, and whether that needs a rebalance (kraft.md 5.2)."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.coordinator.decisions.effects import Asker, Effects
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.embedded_protocol import read_subscription
from ottla.broker.coordinator.decisions.groups.group_records import group_record
from ottla.broker.coordinator.decisions.groups.join_request import METADATA_BYTES_MAX, Joining, new_member_id
from ottla.broker.coordinator.decisions.groups.member import Member, Protocols
from ottla.broker.coordinator.decisions.groups.migration.emulation import Emulation
from ottla.broker.coordinator.decisions.groups.rebalance import Rebalance, cause_of, join_refused
from ottla.broker.coordinator.decisions.groups.rebalance_record import Kind
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.coordinator.decisions.groups.subscriptions import read_topics
from ottla.broker.coordinator.decisions.record_format import fits
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest
from ottla.broker.wire.messages.join_group_response import JoinGroupResponse
from ottla.runtime.errors import ErrorCode

_SKIP_ASSIGNMENT_FROM = 9
PENDING_MAX = 10_000
"""Ids of one group that were given and not used yet: a storm of joins costs some megabytes."""


class _Before(NamedTuple):
    """What a static member was."""

    id: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int


class Joins:
    """Answers at once, or when the rebalance is complete."""

    def __init__(
        self,
        effects: Effects,
        settings: GroupSettings,
        rebalance: Rebalance,
        find: Callable[[str, bool], ClassicGroup | None],
        admit: Callable[[str], ErrorCode],
        emulation: Emulation,
    ) -> None:
        """``find(group_id, makes)``: the group; if there is none, a new one where it may be made, else None. ``admit(group_id)``: whether
        there may be a classic group of that id."""
        self._effects = effects
        self._settings = settings
        self._rebalance = rebalance
        self._find = find
        self._admit = admit
        self._emulation = emulation
        self._before: dict[str, _Before] = {}
        """By their new ids: static members whose new ids are not committed yet."""

    def join(self, asker: Asker, request: JoinGroupRequest) -> None:
        joining = Joining.of(asker, request)
        refusal = self._refusal(joining, request.group_id)
        consumers = self._emulation.find(request.group_id)
        if not refusal and consumers is not None:
            self._emulation.join(consumers, joining)
            return
        if not refusal and not joining.member_id:  # who has an id was admitted before
            refusal = self._admit(request.group_id)
        if refusal:
            joining.refuse(refusal)
            return
        group = self._find(request.group_id, not joining.member_id)
        if group is None:
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        elif not self._has_room(group, joining.member_id):
            if joining.member_id not in group.joining:
                self._rebalance.remove(group, joining.member_id)
                self._rebalance.complete_if_joined(group)  # the others may have waited for it alone
            joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        elif group.bytes_without(self._place_of(group, joining)) + joining.size > METADATA_BYTES_MAX:
            joining.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(joining.protocol_type, joining.protocols):
            joining.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not joining.member_id:
            self._join_unknown(group, joining)
        else:
            self._join_known(group, joining)

    def _refusal(self, joining: Joining, group_id: str) -> ErrorCode:
        """What can be said without the group."""
        settings = self._settings
        if not settings.min_session_timeout_ms <= joining.session_timeout_ms <= settings.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not fits(group_id):
            return ErrorCode.INVALID_GROUP_ID
        if not joining.can_be_written:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    @staticmethod
    def _place_of(group: ClassicGroup, joining: Joining) -> str:
        """The member whose place it takes: itself, or the static one before it; empty for a new one."""
        return joining.member_id or group.static.get(joining.instance_id or "", "")

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """While a rebalance is prepared those that are not back yet keep nobody out."""
        if len(group.pending) >= PENDING_MAX and not member_id:
            return False
        if group.is_in(GroupState.EMPTY):
            return True
        size_max = self._settings.max_size
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return member_id in group.joining or len(group.joining) < size_max
        return member_id in group.members or len(group.members) < size_max

    # --- without an id ------------------------------------------------------------------------------------------------

    def _join_unknown(self, group: ClassicGroup, joining: Joining) -> None:
        member_id = new_member_id(joining, self._effects)
        replaced = group.static.get(joining.instance_id) if joining.instance_id is not None else None
        if replaced is not None:
            self._replace(group, group.members[replaced], member_id, joining)
        elif joining.needs_id:
            # It joins again with its id: a client that is gone leaves no member behind (KIP-394).
            group.pending.add(member_id)
            self._rebalance.await_pending(group, member_id, joining.session_timeout_ms)
            joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, member_id, joining)

    def _add(self, group: ClassicGroup, member_id: str, joining: Joining) -> None:
        member = Member(
            member_id,
            joining.instance_id,
            joining.asker.client_id,
            joining.asker.client_host,
            joining.rebalance_timeout_ms,
            joining.session_timeout_ms,
            joining.protocols,
            is_new=True,
        )
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.state_before is GroupState.EMPTY:
            group.joined_meanwhile = True
        group.add(member, joining.protocol_type)
        group.joining[member_id] = joining.asker
        self._rebalance.keep_new(group, member)
        self._rebalance.go_on(group, cause_of(Kind.JOIN, member, joining.reason))

    # --- with an id ---------------------------------------------------------------------------------------------------

    def _join_known(self, group: ClassicGroup, joining: Joining) -> None:
        member_id = joining.member_id
        if member_id in group.pending and joining.instance_id is None:
            self._add(group, member_id, joining)
            return
        error = group.error_of(member_id, joining.instance_id)
        if error:
            joining.refuse(error)
            return
        member = group.members[member_id]
        if member.is_behind and _owns_any(joining.protocols):
            self._refuse_behind(group, member, joining)
            return
        is_changed = list(member.protocols) != list(joining.protocols)
        if group.is_in(GroupState.COMPLETING_REBALANCE) and not is_changed:
            joining.asker.answer(self._rebalance.joined(group, member_id, joining.asker.version))  # the answer was lost
        elif group.is_in(GroupState.STABLE) and not is_changed and member_id != group.leader_id:
            joining.asker.answer(self._rebalance.joined(group, member_id, joining.asker.version))
        elif group.is_in(GroupState.EMPTY):
            joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            # The leader joins again when what it assigns has changed, such as the partitions of a topic.
            kind = _kind(member.protocols, joining.protocols) if is_changed else Kind.METADATA
            self._update(group, member, joining)
            self._rebalance.go_on(group, cause_of(kind, member, joining.reason))

    def _refuse_behind(self, group: ClassicGroup, member: Member, joining: Joining) -> None:
        """What it says that it owns is of an older generation than what others say, so assignors do not believe it (Java's sticky ones), and
        give to others what it reads. The others wait for it until their time is up: it is back at once, as somebody new."""
        if member.instance_id is None:  # who comes after a static one takes its place
            cause = cause_of(Kind.LEAVE, member, "it had missed an epoch of the consumer group, and begins anew")
            self._rebalance.remove(group, member.id)
            self._rebalance.recorder.went_on(group, cause)
        joining.refuse(ErrorCode.UNKNOWN_MEMBER_ID)

    def _update(self, group: ClassicGroup, member: Member, joining: Joining) -> None:
        self._rebalance.refuse(
            group, member.id, ErrorCode.REBALANCE_IN_PROGRESS
        )  # an answer that nobody waits for any more
        group.change_protocols(member, joining.protocols)
        member.is_behind = False
        member.session_timeout_ms = joining.session_timeout_ms
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms
        group.joining[member.id] = joining.asker

    # --- static members -----------------------------------------------------------------------------------------------

    def _replace(self, group: ClassicGroup, member: Member, new_id: str, joining: Joining) -> None:
        """Another process of the same instance: it takes over without a rebalance if it can do what the old one could."""
        old_leader = group.leader_id
        before = _Before(member.id, member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)
        self._rebalance.refuse(group, member.id, ErrorCode.FENCED_INSTANCE_ID)
        self._rename(group, member, new_id)
        group.change_protocols(member, joining.protocols)
        member.session_timeout_ms = joining.session_timeout_ms
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms
        if not group.is_in(GroupState.STABLE) or group.chosen_protocol() != group.protocol:
            group.joining[new_id] = joining.asker
            words = ", ".join(filter(None, [f"instance {member.instance_id}", joining.reason]))
            self._rebalance.go_on(group, cause_of(Kind.REPLACED, member, words))
            return
        self._before[new_id] = before

        def written(error: ErrorCode) -> None:
            before = self._before.pop(new_id)
            if error:
                if self._find(group.id, False) is group:  # and not a consumer group by now
                    self._restore(group, member, new_id, before)
                joining.asker.answer(join_refused(joining.asker, new_id, error))
            else:
                joining.asker.answer(self._took_over(group, new_id, old_leader, joining))

        assignments = {each.id: each.assignment for each in group.members.values()}
        self._effects.write([group_record(group, assignments)], written)

    def _restore(self, group: ClassicGroup, member: Member, new_id: str, before: "_Before") -> None:
        """Its new id could not be written: it is who it was. If a third process has come meanwhile, that one replaced him."""
        if group.members.get(new_id) is member:
            self._rename(group, member, before.id)
            group.change_protocols(member, before.protocols)
            member.session_timeout_ms, member.rebalance_timeout_ms = (
                before.session_timeout_ms,
                before.rebalance_timeout_ms,
            )
        for later_id, later in self._before.items():
            if later.id == new_id:
                self._before[later_id] = before

    def _rename(self, group: ClassicGroup, member: Member, new_id: str) -> None:
        self._rebalance.forget_session(group, member.id)
        group.rename(member, new_id)
        member.expires_ms, member.is_behind = 0, False
        self._rebalance.keep(group, member)

    def _took_over(
        self, group: ClassicGroup, member_id: str, old_leader: str | None, joining: Joining
    ) -> JoinGroupResponse:
        """A leader that is told of the members assigns anew, unless it is told to skip that (KIP-814); clients that cannot be
        told so are told that the old process leads."""
        answer = self._rebalance.joined(group, member_id, joining.asker.version)
        if joining.asker.version >= _SKIP_ASSIGNMENT_FROM:
            answer.skip_assignment = member_id == group.leader_id
        else:
            answer.members, answer.leader = [], old_leader or ""
        return answer


def _owns_any(protocols: Protocols) -> bool:
    """Whether it says that it goes on to read something."""
    try:
        return any(read_subscription(metadata).owned for _, metadata in protocols)
    except (WireError, ValueError):
        return False


def _kind(before: Protocols, now: Protocols) -> Kind:
    """Members of cooperative groups tell what they own with the topics that they read: that is no change of these."""
    old, new = ({name: read_topics(metadata) for name, metadata in each} for each in (before, now))
    is_same = old == new and None not in new.values()
    return Kind.HANDED_BACK if is_same else Kind.SUBSCRIPTION
