"""ConsumerGroupHeartbeat (68): members join, say what they have, and are told what to have (KIP-848).

What changes is written in three steps: the member and the group's epoch, the target, what the member holds. After any of them another
coordinator can go on: it finds a member that has not come to its target yet.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ottla.broker.coordinator.decisions.effects import Asker, Effects, Record
from ottla.broker.coordinator.decisions.groups.consumer import requests
from ottla.broker.coordinator.decisions.groups.consumer.departures import Departures
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.identities import Identity, identified, updated
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, Held, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.reconciliation import Aim, Owned, reconciled
from ottla.broker.coordinator.decisions.groups.consumer.records import current_record, epoch_record, member_record
from ottla.broker.coordinator.decisions.groups.consumer.targets import is_due, next_target, preferred_assignor
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, SubscribedIds, metadata_hash
from ottla.broker.coordinator.decisions.groups.consumer.writes import Writes
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.runtime.errors import ErrorCode, KafkaError

Displaced = Callable[[str], Sequence[Record]]
"""What to write first so that the group of that id can be a consumer group; raises KafkaError where it cannot."""

MEMBERS_A_TURN = 1_000
"""So many are watched at once when a shard begins, or not any more when it ends."""


class Heartbeats:
    """Of all consumer groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        settings: GroupSettings,
        topics: GroupTopics,
        groups: ConsumerGroups,
        displaced: Displaced,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._displaced = displaced
        self._departures = Departures(effects, settings, topics, groups)
        self._sessions = self._departures.sessions

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
        """Nobody waits here: whoever is told something is told by the write that failed."""
        yield from self._sessions.end(MEMBERS_A_TURN)
        for _ in self._groups.forget():
            yield

    # --- a member is there --------------------------------------------------------------------------------------------

    def _stay(self, asker: Asker, request: ConsumerGroupHeartbeatRequest) -> None:
        group = self._groups.find(request.group_id)
        member_id, owned = request.member_id or self._effects.new_id(), requests.owned_of(request)
        identity = identified(group, member_id, request, owned)
        after = updated(identity.member, asker, request)
        if group is not None and after is identity.member and self._is_at_rest(group, after, request):
            self._keep(request.group_id, member_id)
            asker.answer(self._told(after, None))
            return
        if identity.is_new:
            self._check_size(group)
        first = self._displaced(request.group_id) if group is None else identity.records
        writes = Writes(self._effects, lambda error: self._answer(asker, answer, group, error))
        self._update(group, identity, after, [*first], request.group_id, writes)
        group = self._groups.find(request.group_id)
        answer = requests.refused(writes.error)
        if group is not None and not writes.error:
            self._keep(request.group_id, member_id)
            self._aim(group, writes)
            answer = self._reconcile(group, request, member_id, owned, writes)
            tells_more = answer.assignment is not None or answer.member_epoch != request.member_epoch
            if tells_more and not writes.count:
                writes.write_nothing()
        writes.close()

    @staticmethod
    def _is_at_rest(group: ConsumerGroup, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> bool:
        """Nothing is due to this member: it is told what it says itself, which needs to wait for nothing."""
        if group.is_refresh_due or group.epoch > group.assignment_epoch or requests.is_full(request):
            return False
        return group.is_settled(member) and member.epoch == request.member_epoch

    @staticmethod
    def _answer(
        asker: Asker,
        answer: ConsumerGroupHeartbeatResponse,
        group: ConsumerGroup | None,
        error: ErrorCode,
    ) -> None:
        if error and group is not None:
            group.is_refresh_due = True  # what it found of its topics may not be written
        asker.answer(requests.refused(error) if error else answer)

    def _keep(self, group_id: str, member_id: str) -> None:
        self._sessions.keep(group_id, member_id, self._settings.consumer_session_timeout_ms)

    def _check_size(self, group: ConsumerGroup | None) -> None:
        size_max = self._settings.consumer_max_size
        if group is not None and len(group.members) >= size_max:
            message = f"The consumer group has reached its maximum capacity of {size_max} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    # --- first step: the member and the group's epoch -----------------------------------------------------------------

    def _update(
        self,
        group: ConsumerGroup | None,
        identity: Identity,
        after: ConsumerMember,
        records: list[Record],
        group_id: str,
        writes: Writes,
    ) -> None:
        """Who is new or subscribes to something else makes another target due, and so do topics that changed. Member and epoch stand
        together: one without the other would be a member that is never given anything."""
        before, is_new = identity.member, identity.is_new
        if is_new or after is not before:
            records.append(member_record(group_id, after))
        bumps = is_new or after.topics != before.topics or self._changes_assignor(group, before, after)
        if bumps or group is None or group.is_refresh_due:
            epoch, hash_before = (group.epoch, group.metadata_hash) if group is not None else (0, 0)
            hash_now = metadata_hash(_subscribed(group, None if is_new else before, after), self._topics)
            if bumps or hash_now != hash_before:
                records.append(epoch_record(group_id, epoch + 1, hash_now))
        writes.write(records)
        if not writes.error and (now := self._groups.find(group_id)) is not None:
            now.is_refresh_due = False

    def _changes_assignor(self, group: ConsumerGroup | None, before: ConsumerMember, after: ConsumerMember) -> bool:
        if group is None or before.assignor == after.assignor:
            return False
        votes = group.assignors.copy()
        votes.subtract([before.assignor] if before.assignor else ())
        votes.update([after.assignor] if after.assignor else ())
        known = self._settings.consumer_assignors
        return preferred_assignor(group.assignors, known) != preferred_assignor(votes, known)

    # --- second step: the target --------------------------------------------------------------------------------------

    def _aim(self, group: ConsumerGroup, writes: Writes) -> None:
        """Written in pieces: a target of which a part is known gives nobody what another holds, and is due as before."""
        settings, time_ms = self._settings, self._effects.time_ms
        if is_due(group, time_ms, settings.consumer_assignment_interval_ms):
            assignor = preferred_assignor(group.assignors, settings.consumer_assignors)
            writes.write_in_pieces(next_target(group, assignor, self._topics, time_ms))

    # --- third step: what the member holds ----------------------------------------------------------------------------

    def _reconcile(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        owned: Owned | None,
        writes: Writes,
    ) -> ConsumerGroupHeartbeatResponse:
        before = group.members[member_id]
        aim = Aim(
            group.assignment_epoch,
            group.targets.get(member_id, {}),
            SubscribedIds(before.topics, self._topics),
            partial(group.is_free_for, member_id),
        )
        after = reconciled(before, aim, owned)
        if after != before:
            writes.write([current_record(group.id, after)])
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self._sessions.await_revocation(group.id, after)
        tells = requests.is_full(request) or after.assigned != before.assigned
        return self._told(after, after.assigned if tells else None)

    def _told(self, member: ConsumerMember, assigned: Held | None) -> ConsumerGroupHeartbeatResponse:
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._settings.consumer_heartbeat_interval_ms,
        )
        if assigned is not None:
            answer.assignment = Assignment([TopicPartitions(each, sorted(assigned[each])) for each in sorted(assigned)])
        return answer


def _subscribed(group: ConsumerGroup | None, before: ConsumerMember | None, after: ConsumerMember) -> set[str]:
    """The topics of the whole group once a member has changed."""
    if group is None:
        return set(after.topics)
    were = before.topics if before is not None else frozenset()
    return {each for each in group.readers if each not in were or group.readers[each] > 1} | after.topics
