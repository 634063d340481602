"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47), and how offsets expire (kraft.md 5.3, "Offsets")."""

from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from ottla.broker.coordinator.decisions.append_errors import told_to_readers
from ottla.broker.coordinator.decisions.effects import Asker, Effects, Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.committed_offset import LATEST, NEVER, CommittedOffset
from ottla.broker.coordinator.decisions.groups.consumer.commits import commit_error, fetch_error
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.embedded_protocol import CONSUMER
from ottla.broker.coordinator.decisions.groups.group_records import offset_record, offset_tombstone
from ottla.broker.coordinator.decisions.groups.kinds import AnyGroup
from ottla.broker.coordinator.decisions.groups.offset_store import OffsetStore, Place
from ottla.broker.coordinator.decisions.groups.rebalance import Rebalance
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.coordinator.decisions.groups.subscriptions import subscribed_topics
from ottla.broker.coordinator.decisions.record_format import fits
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.broker.wire.messages.offset_delete_request import OffsetDeleteRequest
from ottla.broker.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.broker.wire.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.broker.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

_BY_EPOCH_FROM = 9
_BY_TOPIC_ID_FROM = 10
NO_GENERATION = -1
NO_OFFSET = -1


class Topics(Protocol):
    """Which topics there are."""

    def id_of(self, name: str) -> bytes | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def has(self, name: str, index: int) -> bool: ...

    def partition_count(self, topic_id: bytes) -> int: ...


class Offsets:
    """The requests about offsets, of all groups of a shard."""

    def __init__(
        self,
        effects: Effects,
        settings: GroupSettings,
        topics: Topics,
        store: OffsetStore,
        rebalance: Rebalance,
        find: Callable[[str, bool], ClassicGroup | None],
        consumers: ConsumerGroups,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._topics = topics
        self._store = store
        self._rebalance = rebalance
        self._find = find
        self._consumers = consumers

    # --- OffsetCommit -------------------------------------------------------------------------------------------------

    def commit(self, asker: Asker, request: OffsetCommitRequest) -> None:
        """Each partition is judged by itself; what is taken is written together."""
        error = self._commit_error(asker, request)
        if error:
            asker.answer(refused_commit(request, error))
            return
        now_ms = self._effects.time_ms
        expires_ms = NEVER if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, LATEST)
        records: list[Record] = []
        taking = _Taking(request.group_id, asker.version >= _BY_TOPIC_ID_FROM, now_ms, expires_ms, records)
        answer = OffsetCommitResponse(topics=[self._take_topic(taking, told) for told in request.topics])
        if not records:
            asker.answer(answer)
            return
        self._effects.write(records, partial(answer_written, asker, answer))

    def _take_topic(self, taking: "_Taking", told: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        by_id = taking.by_id
        name = self._topics.name_of(told.topic_id) if by_id else told.name
        topic_id = self._topics.id_of(name) if name is not None else None
        topic = OffsetCommitResponseTopic(told.name, told.topic_id, [])
        for each in told.partitions:
            if name is None or topic_id is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not self._topics.has(name, each.partition_index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                code = self._take(taking, name, topic_id, each)
            topic.partitions.append(OffsetCommitResponsePartition(each.partition_index, code))
        return topic

    def _take(self, taking: "_Taking", topic: str, topic_id: bytes, told: OffsetCommitRequestPartition) -> ErrorCode:
        metadata = told.committed_metadata or ""
        if metadata and (len(metadata) > self._settings.offset_metadata_bytes_max or not fits(metadata)):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        committed = CommittedOffset(
            told.committed_offset, told.committed_leader_epoch, metadata, taking.now_ms, taking.expires_ms, topic_id
        )
        taking.records.append(offset_record(taking.group_id, topic, told.partition_index, committed))
        return ErrorCode.NONE

    def _commit_error(self, asker: Asker, request: OffsetCommitRequest) -> ErrorCode:
        """Without a generation it comes from somebody who assigns partitions himself, or from an administrator."""
        generation, member_id = request.generation_id_or_member_epoch, request.member_id
        if not fits(request.group_id):
            return ErrorCode.INVALID_GROUP_ID
        consumers = self._consumers.find(request.group_id)
        if consumers is not None:
            partitions = self._partitions_of(asker, request)
            return commit_error(consumers, member_id, generation, asker.version, partitions)
        group = self._find(request.group_id, generation < 0)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if asker.version >= _BY_EPOCH_FROM else ErrorCode.ILLEGAL_GENERATION
        if generation < 0 and group.is_in(GroupState.EMPTY):
            return ErrorCode.NONE
        if generation < 0 and not member_id and request.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID  # it has members, and this is none of them
        error = group.error_of(member_id, request.group_instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS  # it has to ask for its assignment first
        self._rebalance.keep(group, group.members[member_id])
        return ErrorCode.NONE

    def _partitions_of(self, asker: Asker, request: OffsetCommitRequest) -> Iterator[tuple[bytes | None, int]]:
        for topic in request.topics:
            topic_id = topic.topic_id if asker.version >= _BY_TOPIC_ID_FROM else self._topics.id_of(topic.name)
            for each in topic.partitions:
                yield topic_id, each.partition_index

    # --- OffsetFetch --------------------------------------------------------------------------------------------------

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        *,
        is_stable: bool,
        by_id: bool,
        told: Callable[[OffsetFetchResponseGroup], None],
    ) -> None:
        """``told`` when everything is committed that the answer says: what is not might be lost with this coordinator.
        ``is_stable``: no offset that an open transaction may change."""
        consumers = self._consumers.find(request.group_id)
        error = (
            fetch_error(consumers, request.member_id, request.member_epoch) if consumers is not None else ErrorCode.NONE
        )
        if error:
            told(OffsetFetchResponseGroup(request.group_id, [], error))
            return
        answer = OffsetFetchResponseGroup(request.group_id, [])
        if request.topics is None:
            answer.topics = self._all_of(request.group_id, is_stable=is_stable, by_id=by_id)
        else:
            for (asked_name, topic_id), indexes in _each_once(request.topics).items():
                name = self._topics.name_of(topic_id) if by_id else asked_name
                places = [Place(name or "", each) for each in indexes]
                if name is None:
                    found = [_nothing(each.partition, ErrorCode.UNKNOWN_TOPIC_ID) for each in places]
                else:
                    found = [self._told(request.group_id, each, is_stable=is_stable) for each in places]
                answer.topics.append(OffsetFetchResponseTopics(asked_name, topic_id, found))

        def committed(error: ErrorCode) -> None:
            told(OffsetFetchResponseGroup(request.group_id, [], told_to_readers(error)) if error else answer)

        self._effects.write((), committed)

    def _all_of(self, group_id: str, *, is_stable: bool, by_id: bool) -> list[OffsetFetchResponseTopics]:
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for place, _ in self._store.of_group(group_id):
            topic_id = self._topics.id_of(place.topic)
            if by_id and topic_id is None:
                continue
            topic = topics.get(place.topic)
            if topic is None:
                topic = topics[place.topic] = OffsetFetchResponseTopics(place.topic, topic_id or ZERO_ID, [])
            topic.partitions.append(self._told(group_id, place, is_stable=is_stable))
        return list(topics.values())

    def _told(self, group_id: str, place: Place, *, is_stable: bool) -> OffsetFetchResponsePartitions:
        now_id = self._topics.id_of(place.topic)
        if is_stable and any(_may_be_of(now_id, each) for each in self._store.pending(group_id, place)):
            return _nothing(place.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        known = self._store.get(group_id, place)
        if known is None or not _may_be_of(now_id, known):
            return _nothing(place.partition, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(place.partition, known.offset, known.leader_epoch, known.metadata)

    # --- OffsetDelete -------------------------------------------------------------------------------------------------

    def delete(self, asker: Asker, request: OffsetDeleteRequest) -> None:
        """Of topics that nobody of the group reads."""
        error, read = self._topics_read(request.group_id)
        if error:
            asker.answer(OffsetDeleteResponse(error_code=error))
            return
        group_id = request.group_id
        records: list[Record] = []
        answer = OffsetDeleteResponse(topics=[])
        for told in request.topics:
            is_read = read is None or told.name in read
            topic = OffsetDeleteResponseTopic(told.name, [])
            answer.topics.append(topic)
            for each in told.partitions:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
                if not self._topics.has(told.name, each.partition_index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topic.partitions.append(OffsetDeleteResponsePartition(each.partition_index, code))
                if not code and self._store.has(group_id, Place(told.name, each.partition_index)):
                    records.append(offset_tombstone(group_id, told.name, each.partition_index))

        def written(error: ErrorCode) -> None:
            asker.answer(OffsetDeleteResponse(error_code=error) if error else answer)

        self._effects.write(records, written)

    def _topics_read(self, group_id: str) -> tuple[ErrorCode, Container[str] | None]:
        """None: it cannot be known, so it may be all of them."""
        consumers = self._consumers.find(group_id)
        if consumers is not None:
            return ErrorCode.NONE, consumers.readers
        group = self._find(group_id, False)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, None
        if group.members and group.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP, None
        return ErrorCode.NONE, subscribed_topics(group) if group.members else frozenset()

    def tombstones(self, group_id: str) -> list[Record]:
        """For all offsets of a group; a transaction that is not decided does not bring any of them back."""
        return [offset_tombstone(group_id, *place) for place in self._store.places_of(group_id)]

    # --- expiry -------------------------------------------------------------------------------------------------------

    def expired(self, group: AnyGroup) -> list[Record]:
        """Tombstones of what nobody needs any more (KIP-211): of a group without members since it has none, of one with members
        where none reads the topic, of offsets without a group since they were committed. None that a transaction may change."""
        now_ms = self._effects.time_ms
        unread_since = self._unread_since(group)
        gone: list[Record] = []
        for place, committed in self._store.of_group(group.id):
            since_ms = unread_since(place)
            # Of a topic that is deleted at once: another one of that name begins at 0.
            is_due = self._is_of_no_topic(place, committed) or (
                since_ms is not None and now_ms >= self._kept_until_ms(committed, since_ms)
            )
            if is_due and not self._store.is_pending(group.id, place):
                gone.append(offset_tombstone(group.id, *place))
        return gone

    def _kept_until_ms(self, committed: CommittedOffset, unread_since_ms: int) -> int:
        if committed.expire_time_ms != NEVER:
            return committed.expire_time_ms
        return max(unread_since_ms, committed.commit_time_ms) + self._settings.offsets_retention_ms

    @staticmethod
    def _unread_since(group: AnyGroup) -> Callable[[Place], int | None]:
        """Since when nobody reads a place, as far as the group knows; None: somebody does. Members that left a moment ago did, however old an
        offset is; and what an expression reads that is not resolved yet nobody knows."""
        if isinstance(group, ConsumerGroup):
            emptied_ms = 0 if group.members else group.emptied_ms
            is_known = group.regexes.keys() <= group.resolved.keys()
            return lambda place: emptied_ms if is_known and place.topic not in group.readers else None
        if group.protocol_type is None:
            return lambda _: 0
        if group.is_in(GroupState.EMPTY):
            return lambda _: group.since_ms
        read = subscribed_topics(group) if group.is_in(GroupState.STABLE) else None
        return lambda place: 0 if read is not None and place.topic not in read else None

    def _is_of_no_topic(self, place: Place, committed: CommittedOffset) -> bool:
        """Older clients' and older nodes' records name no id."""
        if committed.topic_id == ZERO_ID:
            return self._topics.id_of(place.topic) is None
        return self._topics.name_of(committed.topic_id) is None


def _each_once(asked: Iterable[OffsetFetchRequestTopics]) -> dict[tuple[str, bytes], dict[int, None]]:
    """Partitions by topic: a few bytes of a request ask for one, whose metadata may be a thousand times as much."""
    found: dict[tuple[str, bytes], dict[int, None]] = {}
    for each in asked:
        found.setdefault((each.name, each.topic_id), {}).update(dict.fromkeys(each.partition_indexes))
    return found


def answer_written(asker: Asker, answer: OffsetCommitResponse | TxnOffsetCommitResponse, error: ErrorCode) -> None:
    """To whoever committed, once it is known what became of what was taken; what was refused has its error already."""
    if error:
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or error
    asker.answer(answer)


class _Taking(NamedTuple):
    """Of one OffsetCommit: what all its partitions have in common, and the records of those that are taken."""

    group_id: str
    by_id: bool
    now_ms: int
    expires_ms: int
    records: list[Record]


def _may_be_of(topic_id: bytes | None, committed: CommittedOffset) -> bool:
    """Not of a topic that had the name before: its tombstone is on the way, or its transaction's marker. None: there is no such topic now."""
    return topic_id is None or committed.topic_id in (ZERO_ID, topic_id)


def _nothing(partition: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition, NO_OFFSET, -1, "", error)


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )
