"""Members of consumer groups leave, or are taken out because nothing was heard from them in time."""

from collections.abc import Callable

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.effects import Asker, Effects
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.member import (
    NOTHING_HELD,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
)
from ottla.broker.coordinator.decisions.groups.consumer.records import current_record, epoch_record, member_tombstones
from ottla.broker.coordinator.decisions.groups.consumer.requests import refused
from ottla.broker.coordinator.decisions.groups.consumer.sessions import Sessions
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, metadata_hash
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.runtime.errors import ErrorCode, KafkaError


class Departures:
    """Of all consumer groups of a shard."""

    def __init__(self, effects: Effects, settings: GroupSettings, topics: GroupTopics, groups: ConsumerGroups) -> None:
        self._effects = effects
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self.sessions = Sessions(effects, groups, self._expel)

    def leave(self, asker: Asker, request: ConsumerGroupHeartbeatRequest) -> None:
        """A static member may leave for a while: then what it holds is kept for its session. Raises KafkaError: GROUP_ID_NOT_FOUND,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        group = self._groups.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        member = _leaving(group, request)

        def told(error: ErrorCode) -> None:
            answer = ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=request.member_epoch)
            asker.answer(refused(error) if error else answer)

        if request.member_epoch == STATIC_LEAVING_EPOCH:
            left = replace(member, epoch=STATIC_LEAVING_EPOCH, state=MemberState.STABLE, revoking=NOTHING_HELD)
            self.sessions.keep(group.id, member.id, self._settings.consumer_session_timeout_ms)
            self._effects.write([current_record(group.id, left)], told)
        else:
            self._remove(group, member, told)

    def _expel(self, group: ConsumerGroup, member: ConsumerMember, reason: str) -> None:
        def told(error: ErrorCode) -> None:
            if error:  # it is a member still, and is looked at again
                self.watch(group.id, member)

        self._remove(group, member, told)

    def watch(self, group_id: str, member: ConsumerMember) -> None:
        """From now on, as if it had just been heard from."""
        self.sessions.keep(group_id, member.id, self._settings.consumer_session_timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.sessions.await_revocation(group_id, member)

    def _remove(self, group: ConsumerGroup, member: ConsumerMember, told: Callable[[ErrorCode], None]) -> None:
        """What it held is free at once; the next heartbeat of any other finds that another target is due."""

        def written(error: ErrorCode) -> None:
            if not error:
                self.sessions.forget(group.id, member.id)
            told(error)

        names = {each for each in group.readers if each not in member.topics or group.readers[each] > 1}
        epoch = epoch_record(group.id, group.epoch + 1, metadata_hash(names, self._topics))
        self._effects.write([*member_tombstones(group.id, member.id), epoch], written)


def _leaving(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            message = f"There is no member {request.member_id} in {request.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member
    holder_id = group.static.get(request.instance_id)
    if holder_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if holder_id != request.member_id:
        message = f"Static member {request.member_id} was fenced by member {holder_id}."
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, message)
    return group.members[holder_id]
