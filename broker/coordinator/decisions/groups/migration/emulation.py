"""JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13) of members that speak the classic protocol in a consumer group.

They are members as all others are: the coordinator assigns, and nobody leads. A generation is the member's own epoch. To join again is how
such a member says what it still has, and to ask for its assignment how it is told what it has now; its heartbeats tell it when it has to.
"""

from functools import partial

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.effects import Asker, Effects
from ottla.broker.coordinator.decisions.groups.consumer.departures import Departures
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.identities import Identity, succeeded
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.reconciliation import Owned
from ottla.broker.coordinator.decisions.groups.consumer.steps import Change, Moved, Steps
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics
from ottla.broker.coordinator.decisions.groups.embedded_protocol import CONSUMER, Subscription, read_subscription
from ottla.broker.coordinator.decisions.groups.join_request import METADATA_BYTES_MAX, Joining, new_member_id
from ottla.broker.coordinator.decisions.groups.member import bytes_of
from ottla.broker.coordinator.decisions.groups.migration.downgrading import assignment_of, common_protocols
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.broker.wire.messages.join_group_response import JoinGroupResponse
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.broker.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest
from ottla.broker.wire.messages.sync_group_response import SyncGroupResponse
from ottla.runtime.errors import ErrorCode, KafkaError

MANY_LEAVE_FROM = 3


class Emulation:
    """Of all consumer groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        topics: GroupTopics,
        groups: ConsumerGroups,
        steps: Steps,
        departures: Departures,
    ) -> None:
        self._effects = effects
        self._topics = topics
        self._groups = groups
        self._steps = steps
        self._departures = departures
        self._sessions = departures.sessions

    def find(self, group_id: str) -> ConsumerGroup | None:
        """A consumer group with members: one without makes way for a classic group."""
        group = self._groups.find(group_id)
        return group if group is not None and group.members else None

    # --- JoinGroup ----------------------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, joining: Joining) -> None:
        try:
            self._join(group, joining)
        except KafkaError as error:
            joining.refuse(error.code)

    def _join(self, group: ConsumerGroup, joining: Joining) -> None:
        subscription = _subscription(group, joining)
        if joining.needs_id and not subscription.owned:
            # Whoever joins with an id that is not known is new: nothing is kept of ids that were given. One that was told that it is no
            # member and names partitions all the same (Java before 3.0 may) is in at once: with an id it would be told so for ever.
            joining.refuse(ErrorCode.MEMBER_ID_REQUIRED, new_member_id(joining, self._effects))
            return
        identity = self._identity(group, joining, subscription)
        if identity.is_new:
            self._steps.check_size(group)
        self._check_metadata(group, identity.member, joining)
        self._sessions.has_stepped(group.id, identity.member.id)
        after = _updated(identity.member, joining, subscription)
        owned = self._owned(subscription)
        change = Change(identity, after, owned, joining.session_timeout_ms, identity.records)
        self._steps.take(group.id, change, partial(self._joined, group.id, joining))
        self._departures.shrunk(group.id)  # it may have taken the place of the last one that is not classic

    def _joined(self, group_id: str, joining: Joining, error: ErrorCode, moved: Moved) -> None:
        member = moved.after
        if error is ErrorCode.UNKNOWN_MEMBER_ID and self._groups.find(group_id) is None:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # a classic group by now, which may know it
        if error:
            joining.refuse(error)
            return
        if self._groups.find(group_id) is not None:  # not a classic group again by now
            self._sessions.await_step(group_id, member, "ask for its assignment")
        joining.asker.answer(
            JoinGroupResponse(
                generation_id=member.epoch,
                protocol_type=CONSUMER,
                protocol_name=joining.protocols[0][0],
                member_id=member.id,
            )
        )

    def _identity(self, group: ConsumerGroup, joining: Joining, subscription: Subscription) -> Identity:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID. Another process of a static member takes its place at once, as in
        a classic group. Who was taken out and goes on with what he had is told so: others may have it by now."""
        member_id, instance_id = joining.member_id, joining.instance_id
        if instance_id is not None:
            holder_id = group.static.get(instance_id)
            if not member_id and holder_id is not None:
                return succeeded(group, group.members[holder_id], new_member_id(joining, self._effects))
            if member_id and holder_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {instance_id} is not known")
            if member_id and holder_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} is of another member")
        known = group.members.get(member_id)
        if known is not None:
            return Identity(known)
        if member_id and subscription.owned:  # old clients do not say of which generation
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member any more")
        return Identity(ConsumerMember(member_id or new_member_id(joining, self._effects)), is_new=True)

    @staticmethod
    def _check_metadata(group: ConsumerGroup, before: ConsumerMember, joining: Joining) -> None:
        others = sum(_bytes(each) for each in group.members.values() if each.id != before.id)
        if others + joining.size > METADATA_BYTES_MAX:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "the protocols of all members take too much memory")

    def _owned(self, subscription: Subscription) -> Owned:
        """One that does not name what it owns has given up everything: so have all that do not rebalance cooperatively."""
        found = ((self._topics.id_of(name), partitions) for name, partitions in subscription.owned.items())
        return {topic_id: partitions for topic_id, partitions in found if topic_id is not None}

    # --- SyncGroup ----------------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, asker: Asker, request: SyncGroupRequest) -> None:
        error = _member_error(group, request.member_id, request.group_instance_id, request.generation_id)
        if not error:
            error = _sync_error(group, group.members[request.member_id], request)
        if error:
            asker.answer(SyncGroupResponse(error_code=error))
            return
        member = group.members[request.member_id]
        self._departures.keep(group.id, member)
        self._sessions.has_stepped(group.id, member.id)
        answer = SyncGroupResponse(
            protocol_type=CONSUMER, protocol_name=_protocol(member), assignment=assignment_of(member, self._topics)
        )

        def committed(error: ErrorCode) -> None:
            if member.id not in group.members:
                error = (
                    error or ErrorCode.REBALANCE_IN_PROGRESS
                )  # taken out meanwhile: as it joins again it hears of what
            asker.answer(SyncGroupResponse(error_code=error) if error else answer)

        self._effects.write((), committed)

    # --- Heartbeat ----------------------------------------------------------------------------------------------------

    def heartbeat(self, group: ConsumerGroup, asker: Asker, request: HeartbeatRequest) -> None:
        """Costs no record, unless the group's target is due: it is no other's task when all members are classic."""
        error = _member_error(group, request.member_id, request.group_instance_id, request.generation_id)
        if error:
            asker.answer(HeartbeatResponse(error_code=error))
            return
        member = group.members[request.member_id]
        self._departures.keep(group.id, member)
        if group.is_refresh_due or self._steps.is_aim_due(group):
            self._steps.refresh(group, member)
        if _has_to_join(group, member):
            self._sessions.await_step(group.id, member, "join again")
            error = ErrorCode.REBALANCE_IN_PROGRESS
        asker.answer(HeartbeatResponse(error_code=error))

    # --- LeaveGroup ---------------------------------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, asker: Asker, request: LeaveGroupRequest) -> None:
        """Told once it is committed: those that go on may have their partitions at once."""
        is_many = asker.version >= MANY_LEAVE_FROM
        leaving = request.members if is_many else [MemberIdentity(request.member_id)]
        gone: dict[str, ConsumerMember] = {}
        told = [MemberResponse(each.member_id, each.group_instance_id, _leave(group, each, gone)) for each in leaving]

        def answer(error: ErrorCode) -> None:
            for each in told:
                each.error_code = each.error_code or error
            first = LeaveGroupResponse(error_code=told[0].error_code if told else error)
            asker.answer(LeaveGroupResponse(members=told) if is_many else first)

        if gone:
            self._departures.remove(group, list(gone.values()), answer)
        else:
            answer(ErrorCode.NONE)


# --- joining ----------------------------------------------------------------------------------------------------------


def _subscription(group: ConsumerGroup, joining: Joining) -> Subscription:
    """Raises KafkaError (INCONSISTENT_GROUP_PROTOCOL): it is another kind of client, or has no protocol in common with the other
    classic members, who have to understand each other when the last member is gone that is not classic."""
    names = {name for name, _ in joining.protocols}
    common = common_protocols(each for each in group.members.values() if each.id != joining.member_id)
    if joining.protocol_type != CONSUMER or not names or (common is not None and not names & common):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "it has no protocol in common with the group")
    try:
        return read_subscription(joining.protocols[0][1])
    except WireError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"its subscription cannot be read: {error}") from error


def _updated(member: ConsumerMember, joining: Joining, subscription: Subscription) -> ConsumerMember:
    protocols = [ClassicProtocol(name, metadata) for name, metadata in joining.protocols]
    after = replace(
        member,
        instance_id=joining.instance_id if joining.instance_id is not None else member.instance_id,
        rack_id=subscription.rack_id,
        client_id=joining.asker.client_id,
        client_host=joining.asker.client_host,
        topics=subscription.topics,
        regex="",
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMemberMetadata(joining.session_timeout_ms, protocols),
    )
    return member if after == member else after


def _bytes(member: ConsumerMember) -> int:
    if member.classic is None:
        return 0
    protocols = [(each.name, each.metadata) for each in member.classic.supported_protocols]
    return bytes_of(protocols, member.client_id, member.instance_id)


# --- members ----------------------------------------------------------------------------------------------------------


def _member_error(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Whether a classic member asks, and knows its epoch."""
    if instance_id is not None:
        holder_id = group.static.get(instance_id)
        if holder_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _sync_error(group: ConsumerGroup, member: ConsumerMember, request: SyncGroupRequest) -> ErrorCode:
    """A member that still has to give something up is told what it keeps, although there is a newer target."""
    names = {each.name for each in member.classic.supported_protocols} if member.classic is not None else set()
    is_other_type = request.protocol_type is not None and request.protocol_type != CONSUMER
    if is_other_type or (request.protocol_name is not None and request.protocol_name not in names):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_behind = member.epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS
    return ErrorCode.REBALANCE_IN_PROGRESS if is_behind else ErrorCode.NONE


def _has_to_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """There is a newer target, or it has to say that it gave up what it was told to, or all that it waits for is free now."""
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    target = group.targets.get(member.id, {})
    return all(
        group.is_free_for(member.id, topic_id, each) for topic_id, partitions in target.items() for each in partitions
    )


def _protocol(member: ConsumerMember) -> str | None:
    return member.classic.supported_protocols[0].name if member.classic is not None else None


def _leave(group: ConsumerGroup, leaving: MemberIdentity, gone: dict[str, ConsumerMember]) -> ErrorCode:
    """An administrator may take out any member that is static, by its instance id."""
    member_id = leaving.member_id
    if leaving.group_instance_id is not None:
        holder_id = group.static.get(leaving.group_instance_id)
        if holder_id is None or holder_id in gone:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id and member_id != holder_id:
            return ErrorCode.FENCED_INSTANCE_ID
        gone[holder_id] = group.members[holder_id]
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None or member.classic is None or member_id in gone:
        return ErrorCode.UNKNOWN_MEMBER_ID
    gone[member_id] = member
    return ErrorCode.NONE
