"""Members of consumer groups leave, or are taken out because nothing was heard from them in time."""

from collections.abc import Callable, Sequence

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
from ottla.broker.coordinator.decisions.groups.consumer.recorder import ConsumerRecorder
from ottla.broker.coordinator.decisions.groups.consumer.records import (
    current_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
)
from ottla.broker.coordinator.decisions.groups.consumer.requests import refused
from ottla.broker.coordinator.decisions.groups.consumer.sessions import Sessions
from ottla.broker.coordinator.decisions.groups.consumer.times import Times
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, metadata_hash
from ottla.broker.coordinator.decisions.groups.rebalance_record import Kind
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.runtime.errors import ErrorCode, KafkaError

AGAIN_MS = 1_000
"""At least so long has a member to give up that could not be taken out: it may have said that it needs no time at all."""


class Departures:
    """Of all consumer groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        times: Times,
        topics: GroupTopics,
        groups: ConsumerGroups,
        shrunk: Callable[[str], None],
        recorder: ConsumerRecorder,
    ) -> None:
        """``shrunk``: told of a group that members have left."""
        self._effects = effects
        self._times = times
        self._topics = topics
        self._groups = groups
        self.shrunk = shrunk
        self._recorder = recorder
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
            self.keep(group.id, member)
            self._effects.write([current_record(group.id, left)], told)
        else:
            self.remove(group, [member], told)

    def _expel(self, group: ConsumerGroup, member: ConsumerMember, why: Kind, words: str) -> None:
        def told(error: ErrorCode) -> None:
            if error:  # it is a member still, and is looked at again
                self.watch(group.id, member)

        self.remove(group, [member], told, why, words)

    def keep(self, group_id: str, member: ConsumerMember) -> None:
        """It was heard from."""
        timeout_ms = self._times.session_ms(group_id)
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.sessions.keep(group_id, member.id, timeout_ms)

    def watch(self, group_id: str, member: ConsumerMember) -> None:
        """From now on, as if it had just been heard from."""
        self.keep(group_id, member)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.sessions.await_revocation(group_id, member, AGAIN_MS)

    def remove(
        self,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        told: Callable[[ErrorCode], None],
        why: Kind = Kind.LEAVE,
        words: str = "",
    ) -> None:
        """What they held is free at once; the next heartbeat of any other finds that another target is due."""

        def written(error: ErrorCode) -> None:
            for each in members if not error else ():
                self.sessions.forget(group.id, each.id)
            told(error)

        readers, regexes = group.readers.copy(), group.regexes.copy()
        for each in members:
            readers.subtract(each.topics)
            regexes.subtract([each.regex])
        needless = [regex for regex in group.resolved if regexes[regex] <= 0]
        for regex in needless:
            readers.subtract(group.resolved[regex].topics)
        names = [topic for topic, count in readers.items() if count > 0]
        records = [record for each in members for record in member_tombstones(group.id, each.id)]
        records += [regex_tombstone(group.id, each) for each in needless]
        records.append(epoch_record(group.id, group.epoch + 1, metadata_hash(names, self._topics)))
        self._recorder.about_to_change(group)
        self._effects.write(records, written)
        if not group.members:
            group.emptied_ms = self._effects.time_ms
        self._recorder.went(group, members, why, words)
        self.shrunk(group.id)


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
