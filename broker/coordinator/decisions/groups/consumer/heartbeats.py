"""ConsumerGroupHeartbeat (68): members join, say what they have, and are told what to have (KIP-848)."""

from collections.abc import Callable, Iterator, Sequence

from ottla.broker.coordinator.decisions.effects import Asker, Effects, Record
from ottla.broker.coordinator.decisions.groups.consumer import requests
from ottla.broker.coordinator.decisions.groups.consumer.departures import Departures
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.identities import identified, updated
from ottla.broker.coordinator.decisions.groups.consumer.member import JOINING_EPOCH, ConsumerMember, Held
from ottla.broker.coordinator.decisions.groups.consumer.patterns import check_regexes
from ottla.broker.coordinator.decisions.groups.consumer.steps import Change, Moved, Steps
from ottla.broker.coordinator.decisions.groups.consumer.times import Times
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.runtime.errors import ErrorCode, KafkaError

MakeWay = Callable[[ConsumerGroupHeartbeatRequest], Sequence[Record]]
"""What to write first so that the group that a member joins can be a consumer group: it may be one already when this returns. Raises
KafkaError where it cannot."""

MEMBERS_A_TURN = 1_000
"""So many are watched at once when a shard begins, or not any more when it ends."""


class Heartbeats:
    """Of all consumer groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        settings: GroupSettings,
        times: Times,
        groups: ConsumerGroups,
        departures: Departures,
        steps: Steps,
        make_way: MakeWay,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._times = times
        self._groups = groups
        self._make_way = make_way
        self._departures = departures
        self._sessions = departures.sessions
        self._steps = steps

    def heartbeat(self, asker: Asker, request: ConsumerGroupHeartbeatRequest) -> None:
        try:
            requests.check(request, asker.version, self._settings.consumer_assignors)
            if requests.is_leaving(request):
                self._departures.leave(asker, request)
            else:
                self._stay(asker, request)
        except KafkaError as error:
            asker.answer(requests.refused(error.code, error.message))

    def begin(self) -> Iterator[None]:
        """All is replayed: members have a session's time to be heard from, and their own to give up what they were told to. In pieces."""
        members = [(group.id, member) for group in self._groups for member in group.members.values()]
        for count, (group_id, member) in enumerate(members, 1):
            self._departures.watch(group_id, member)
            if not count % MEMBERS_A_TURN:
                yield

    def end(self) -> Iterator[None]:
        """Most who wait are told by the write that failed."""
        self._steps.end()
        yield from self._sessions.end(MEMBERS_A_TURN)
        for _ in self._groups.forget():
            yield

    # --- a member is there --------------------------------------------------------------------------------------------

    def _stay(self, asker: Asker, request: ConsumerGroupHeartbeatRequest) -> None:
        first: Sequence[Record] = ()
        group = self._groups.find(request.group_id)
        if group is None and request.member_epoch == JOINING_EPOCH:
            first = self._make_way(request)
            group = self._groups.find(request.group_id)
        member_id, owned = request.member_id or self._effects.new_id(), requests.owned_of(request)
        identity = identified(group, member_id, request, owned)
        after = updated(identity.member, asker, request)
        timeout_ms = self._times.session_ms(request.group_id)
        is_behind = requests.is_behind(request, identity.member, owned)
        if group is not None and after is identity.member and not is_behind and self._is_at_rest(group, after, request):
            self._sessions.keep(request.group_id, member_id, timeout_ms)
            asker.answer(self._told(request.group_id, after, None))
            return
        if identity.is_new:
            self._steps.check_size(group)
        check_regexes(group, after)
        self._steps.check_subscription(group, after)

        def tells_assignment(moved: Moved) -> bool:
            return is_behind or requests.is_full(request) or moved.after.assigned != moved.before.assigned

        def tells_news(moved: Moved) -> bool:
            return tells_assignment(moved) or moved.after.epoch != request.member_epoch

        def told(error: ErrorCode, moved: Moved) -> None:
            if not error and not self._has(request.group_id, member_id):
                error = (
                    ErrorCode.UNKNOWN_MEMBER_ID
                )  # its session ended while this was committed: others may have what it was given
            answer = self._told(
                request.group_id, moved.after, moved.after.assigned if tells_assignment(moved) else None
            )
            asker.answer(requests.refused(error) if error else answer)

        change = Change(identity, after, owned, timeout_ms, (*first, *identity.records))
        self._steps.take(request.group_id, change, told, tells_news)

    def _has(self, group_id: str, member_id: str) -> bool:
        group = self._groups.find(group_id)
        return group is not None and member_id in group.members

    @staticmethod
    def _is_at_rest(group: ConsumerGroup, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> bool:
        """Nothing is due to this member: it is told what it says itself, which needs to wait for nothing."""
        if group.is_refresh_due or group.epoch > group.assignment_epoch or requests.is_full(request):
            return False
        is_resolved = not member.regex or member.regex in group.resolved
        return is_resolved and group.is_settled(member)

    def _told(self, group_id: str, member: ConsumerMember, assigned: Held | None) -> ConsumerGroupHeartbeatResponse:
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._times.heartbeat_ms(group_id),
        )
        if assigned is not None:
            answer.assignment = Assignment([TopicPartitions(each, sorted(assigned[each])) for each in sorted(assigned)])
        return answer
