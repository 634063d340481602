"""TxnOffsetCommit (28): offsets that a transaction commits with what it wrote (KIP-447). They count when its marker is read."""

from collections.abc import Callable
from functools import partial

from ottla.broker.coordinator.decisions.effects import Asker, ProducerBatch, Record, TransactionalEffects
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset
from ottla.broker.coordinator.decisions.groups.consumer.commits import commit_error
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.group_records import offset_record
from ottla.broker.coordinator.decisions.groups.offsets import Topics, answer_written
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.coordinator.decisions.record_format import fits
from ottla.broker.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
)
from ottla.broker.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.runtime.errors import ErrorCode


class TransactionalCommits:
    """Of all groups of a shard."""

    def __init__(
        self,
        effects: TransactionalEffects,
        settings: GroupSettings,
        topics: Topics,
        find: Callable[[str, bool], ClassicGroup | None],
        consumers: ConsumerGroups,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._topics = topics
        self._find = find
        self._consumers = consumers

    def commit(self, asker: Asker, request: TxnOffsetCommitRequest, guard: int) -> None:
        """``guard``: under which the transaction's coordinator vouched for this shard's partition. Each partition is judged by itself;
        what is taken is written together."""
        error = self._error_of(asker, request)
        if error:
            asker.answer(refused_commit(request, error))
            return
        now_ms = self._effects.time_ms
        records: list[Record] = []
        answer = TxnOffsetCommitResponse(topics=[])
        for told in request.topics:
            topic_id = self._topics.id_of(told.name)
            topic = TxnOffsetCommitResponseTopic(told.name, [])
            answer.topics.append(topic)
            for each in told.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic_id is not None and self._topics.has(told.name, each.partition_index):
                    code = self._take(request.group_id, told.name, topic_id, each, now_ms, records)
                topic.partitions.append(TxnOffsetCommitResponsePartition(each.partition_index, code))
        if not records:
            asker.answer(answer)
            return
        batch = ProducerBatch(request.producer_id, request.producer_epoch)
        self._effects.write_transactional(records, batch, guard, partial(answer_written, asker, answer))

    def _take(
        self,
        group_id: str,
        topic: str,
        topic_id: bytes,
        told: TxnOffsetCommitRequestPartition,
        now_ms: int,
        records: list[Record],
    ) -> ErrorCode:
        metadata = told.committed_metadata or ""
        if metadata and (len(metadata) > self._settings.offset_metadata_bytes_max or not fits(metadata)):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        committed = CommittedOffset(
            told.committed_offset, told.committed_leader_epoch, metadata, now_ms, topic_id=topic_id
        )
        records.append(offset_record(group_id, topic, told.partition_index, committed))
        return ErrorCode.NONE

    def _error_of(self, asker: Asker, request: TxnOffsetCommitRequest) -> ErrorCode:
        """Older clients say neither who they are nor in which generation, nor do newer ones that only name the group: the transaction's own
        fencing has to do then, whatever kind of group it is. Nor does a rebalance that waits for assignments hold a transaction up. Of
        stale epochs these requests know nothing."""
        generation = request.generation_id
        says_nothing = generation < 0 and not request.member_id and request.group_instance_id is None
        if not fits(request.group_id):
            return ErrorCode.INVALID_GROUP_ID
        if request.producer_id < 0 or request.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING  # its records would be of no transaction, and count at once
        consumers = self._consumers.find(request.group_id)
        if consumers is not None:
            if says_nothing:
                return ErrorCode.NONE
            partitions = (
                (self._topics.id_of(topic.name), each.partition_index)
                for topic in request.topics
                for each in topic.partitions
            )
            error = commit_error(
                consumers, request.member_id, generation, asker.version, partitions, is_transactional=True
            )
            return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error
        group = self._find(request.group_id, generation < 0)
        if group is None:
            return ErrorCode.ILLEGAL_GENERATION
        if says_nothing or (generation < 0 and group.is_in(GroupState.EMPTY)):
            return ErrorCode.NONE
        error = group.error_of(request.member_id, request.group_instance_id)
        if error:
            return error
        return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def refused_commit(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )
