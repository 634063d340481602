"""SyncGroup (14), Heartbeat (12) and LeaveGroup (13) of classic groups (kraft.md 5.2)."""

from collections.abc import Callable

from ottla.broker.coordinator.decisions.effects import Asker, Effects
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.group_records import group_record
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.coordinator.decisions.groups.migration.emulation import MANY_LEAVE_FROM, Emulation
from ottla.broker.coordinator.decisions.groups.rebalance import Rebalance, assigned, cause_of
from ottla.broker.coordinator.decisions.groups.rebalance_record import Cause, Kind
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.broker.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest
from ottla.broker.wire.messages.sync_group_response import SyncGroupResponse
from ottla.runtime.errors import ErrorCode

_PROTOCOL_REQUIRED_FROM = 5

Find = Callable[[str], ClassicGroup | None]


class Memberships:
    """What members ask once they have joined."""

    def __init__(self, effects: Effects, rebalance: Rebalance, find: Find, emulation: Emulation) -> None:
        self._effects = effects
        self._rebalance = rebalance
        self._find = find
        self._emulation = emulation

    # --- SyncGroup ----------------------------------------------------------------------------------------------------

    def sync(self, asker: Asker, request: SyncGroupRequest) -> None:
        """Waits for the leader's assignment, which it may bring itself."""
        if asker.version >= _PROTOCOL_REQUIRED_FROM and None in (request.protocol_type, request.protocol_name):
            asker.answer(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        consumers = self._emulation.find(request.group_id)
        if consumers is not None:
            self._emulation.sync(consumers, asker, request)
            return
        group = self._find(request.group_id)
        error = _sync_error(group, request)
        if group is None or error:
            asker.answer(SyncGroupResponse(error_code=error))
            return
        member = group.members[request.member_id]
        if group.is_in(GroupState.STABLE):
            self._rebalance.synced(group, member.id)
            self._rebalance.keep(group, member)
            self._tell_again(asker, request, assigned(group, member))
            return
        self._rebalance.refuse(group, member.id, ErrorCode.REBALANCE_IN_PROGRESS)
        group.syncing[member.id] = asker
        self._rebalance.synced(group, member.id)
        if member.id == group.leader_id and not group.is_assigned:
            self._assign(group, {each.member_id: each.assignment for each in request.assignments})

    def _tell_again(self, asker: Asker, request: SyncGroupRequest, answer: SyncGroupResponse) -> None:
        """At once, unless this coordinator found the generation in its log and it is not committed yet: another leader may not have it,
        and may begin a generation of that number with an assignment of its own. (Kafka does not wait.) A group that has become a
        consumer group meanwhile knows its members still."""

        def committed(error: ErrorCode) -> None:
            consumers = self._emulation.find(request.group_id)
            if consumers is not None and not error:
                self._emulation.sync(consumers, asker, request)
                return
            error = error or _sync_error(self._find(request.group_id), request)
            asker.answer(SyncGroupResponse(error_code=error) if error else answer)

        self._effects.write((), committed)

    def _assign(self, group: ClassicGroup, brought: dict[str, bytes]) -> None:
        """Nobody learns of an assignment before it is committed: another coordinator would not know of it. A generation has one:
        of a second, its records would say what its members were not told."""
        generation, group.is_assigned = group.generation, True
        assignments = {each: brought.get(each, b"") for each in group.members}

        def written(error: ErrorCode) -> None:
            is_past = not group.is_in(GroupState.COMPLETING_REBALANCE) or group.generation != generation
            if is_past or self._find(group.id) is not group:
                return  # a rebalance has begun meanwhile, or it is a consumer group now: that has answered them
            if error:
                self._rebalance.refuse_syncing(group, error)
                self._rebalance.go_on(group, Cause(Kind.UNWRITTEN, group.leader_id or "", words=error.name))
                return
            for member_id, assignment in assignments.items():
                group.members[member_id].assignment = assignment
            group.change(GroupState.STABLE, self._effects.time_ms)
            self._rebalance.recorder.assigned(group)
            self._rebalance.answer_syncing(group)

        self._effects.write([group_record(group, assignments)], written)

    # --- Heartbeat ----------------------------------------------------------------------------------------------------

    def heartbeat(self, asker: Asker, request: HeartbeatRequest) -> None:
        """Costs no record: liveness is known to this coordinator alone."""
        consumers = self._emulation.find(request.group_id)
        if consumers is not None:
            self._emulation.heartbeat(consumers, asker, request)
            return
        group = self._find(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = _member_error(group, request.member_id, request.group_instance_id, request.generation_id)
        if group is not None and not error:
            self._rebalance.keep(group, group.members[request.member_id])
            if group.is_in(GroupState.PREPARING_REBALANCE):
                error = ErrorCode.REBALANCE_IN_PROGRESS
        asker.answer(HeartbeatResponse(error_code=error))

    # --- LeaveGroup ---------------------------------------------------------------------------------------------------

    def leave(self, asker: Asker, request: LeaveGroupRequest) -> None:
        """Several members may leave with one request (KIP-345): one rebalance for all."""
        consumers = self._emulation.find(request.group_id)
        if consumers is not None:
            self._emulation.leave(consumers, asker, request)
            return
        group = self._find(request.group_id)
        is_many = asker.version >= MANY_LEAVE_FROM
        leaving = request.members if is_many else [MemberIdentity(request.member_id)]
        gone: list[Member] = []
        left = [
            MemberResponse(each.member_id, each.group_instance_id, self._leave(group, each, gone)) for each in leaving
        ]
        if group is not None and not all(each.error_code for each in left):
            more = [f"and {len(gone) - 1} more"] if len(gone) > 1 else []
            words = ", ".join(more + list(filter(None, [next((each.reason for each in leaving if each.reason), None)])))
            self._shrunk(group, cause_of(Kind.LEAVE, gone[0], words) if gone else None)
        if is_many:
            asker.answer(LeaveGroupResponse(members=left))
        else:
            asker.answer(LeaveGroupResponse(error_code=left[0].error_code))

    def _leave(self, group: ClassicGroup | None, leaving: MemberIdentity, gone: list[Member]) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = leaving.member_id
        if leaving.group_instance_id is not None:
            known_id = group.static.get(leaving.group_instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id and member_id != known_id:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = known_id
        elif member_id not in group.members and member_id not in group.pending:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member = self._rebalance.remove(group, member_id)
        if member is not None:
            gone.append(member)
        return ErrorCode.NONE

    def _shrunk(self, group: ClassicGroup, cause: Cause | None) -> None:
        """``cause``: None where only an id was given back that nobody had joined with."""
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance.prepare(group, cause or Cause(Kind.LEAVE, words="an id that was not used"))
        else:
            if cause is not None:
                self._rebalance.recorder.went_on(group, cause)
            self._rebalance.complete_if_joined(group)


def refused_sync(error: ErrorCode) -> SyncGroupResponse:
    """By who has no shard for it. While one loads nothing is known of a rebalance: its members begin anew. That it loads they do not expect
    to hear (Java's consumers end of it), as Kafka had it until 4.0."""
    is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error)


def refused_heartbeat(error: ErrorCode) -> HeartbeatResponse:
    """While a shard loads all is well, as in Kafka: a session begins when it is loaded, and clients do not expect to hear of it
    (aiokafka's consumers end)."""
    is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error)


def _sync_error(group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _member_error(group, request.member_id, request.group_instance_id, request.generation_id)
    if error:
        return error
    is_other_type = request.protocol_type is not None and request.protocol_type != group.protocol_type
    if is_other_type or (request.protocol_name is not None and request.protocol_name != group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.is_in(GroupState.PREPARING_REBALANCE) else ErrorCode.NONE


def _member_error(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Whether a member of that generation asks."""
    error = group.error_of(member_id, instance_id)
    if error:
        return error
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION
