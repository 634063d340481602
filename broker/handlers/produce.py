"""Produce (key 0), versions 3 to 13: the hot path in.

The request is walked into tuples, each batch is stamped and written from the receive buffer, and the answer is packed.
No task, no object per record. acks=0 answers nothing (an error closes the connection, so that the client looks for the
leader again), acks=1 answers once written here, acks=all once the in-sync replicas have it. One partition's failure is its
own. Source: KafkaApis.handleProduceRequest and ReplicaManager.appendRecords; kraft.md 3.3.
"""

from collections.abc import Sequence
from functools import partial

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.cluster_view import node_endpoints
from ottla.broker.handlers.common import raw_route
from ottla.broker.handlers.produce_many import ProduceMany
from ottla.broker.internal_topics import INTERNAL_TOPICS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.acks import ACKS_ALL, ACKS_LEADER, ACKS_NONE, await_acks, is_done
from ottla.broker.replication.appending import append, must_prepare
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.purgatory import ParkedRequest
from ottla.broker.wire.produce_fast import (
    ACK_ERROR,
    ACK_LEADER,
    PartitionAck,
    Topic,
    encode_produce_ack,
    encode_produce_response,
    walk_produce,
)
from ottla.log.compression import DecompressionError
from ottla.log.producers.verification import UnverifiedError
from ottla.log.records import RecordError
from ottla.log.results import AppendInfo
from ottla.runtime.errors import ErrorCode, KafkaError

ADMIN_CLIENT = "__admin_client"
ATTRIBUTES_AT = 22  # low byte of a batch's attributes
ZSTD = 4
FIRST_WITH_STORAGE_ERROR = 4
FIRST_WITH_ZSTD = 7
NO_RECORDS = memoryview(b"")


def routes(broker: BrokerContext) -> list[Route]:
    return [raw_route("Produce", ProduceHandler(broker).handle)]


class ProduceHandler:
    """What the handler needs, bound once."""

    def __init__(self, broker: BrokerContext) -> None:
        self._replicas = broker.replicas
        self._image = broker.image
        self._partitions = broker.replicas.partitions
        self.verifications = broker.verifications
        self.traffic = broker.replicas.traffic
        self.wall_ms = broker.host.clock.wall_ms
        self.now_ms = broker.timers.now_ms
        self._schedule = broker.timers.call_later_ms

    def handle(self, request: RequestContext, frame: memoryview, position: int) -> None:
        transactional_id, acks, timeout_ms, topics = walk_produce(frame, position, request.version)
        if len(topics) == 1 and len(topics[0][1]) == 1 and ACKS_ALL <= acks <= ACKS_LEADER:
            topic, ((index, records),) = topics[0]
            self._produce_one(request, acks, timeout_ms, topic, index, records, transactional_id)
        else:
            ProduceMany(self, request, acks, timeout_ms, transactional_id).run(topics)

    # One partition: what most requests of most clients are.

    def _produce_one(
        self,
        request: RequestContext,
        acks: int,
        timeout_ms: int,
        topic: Topic,
        index: int,
        records: memoryview | None,
        transactional_id: str | None,
    ) -> None:
        try:
            partition, batch = self.find(request, acks, topic, index, records)
            if must_prepare(partition, batch):
                ProduceMany(self, request, acks, timeout_ms, transactional_id).run([(topic, [(index, records)])])
                return
            info = append(partition, batch, acks, self.wall_ms(), self.now_ms())
            traffic = self.traffic
            traffic.bytes_in += info.size_bytes
            traffic.messages_in += info.last_offset - info.first_offset + 1
        except KafkaError as error:
            if isinstance(error, UnverifiedError):
                many = ProduceMany(self, request, acks, timeout_ms, transactional_id)
                many.run_unverified(topic, index, partition, batch, error.header)
            elif isinstance(error, DecompressionError) and error.is_size:
                ProduceMany(self, request, acks, timeout_ms, transactional_id).run([(topic, [(index, records)])])
            else:
                self.answer(request, acks, [(topic, [self.refusal(topic, index, error)])])
            return
        if acks == ACKS_NONE:
            request.no_response()
        elif is_done(partition, acks, info):
            self._acknowledge(request, topic, index, info)
        else:
            parked = ParkedRequest(partial(self._acknowledge_parked, request, topic, index, info))
            await_acks(partition, acks, info, parked)
            self.park(request, parked, timeout_ms)

    @staticmethod
    def _acknowledge(request: RequestContext, topic: Topic, index: int, info: AppendInfo) -> None:
        ack = encode_produce_ack(
            request.version,
            topic,
            index,
            ErrorCode.NONE,
            info.first_offset,
            info.log_append_time_ms,
            info.log_start_offset,
        )
        request.respond([ack])

    def _acknowledge_parked(
        self, request: RequestContext, topic: Topic, index: int, info: AppendInfo, errors: Sequence[int]
    ) -> None:
        if not errors[0]:
            self._acknowledge(request, topic, index, info)
            return
        ack = (index, errors[0], info.first_offset, info.log_append_time_ms, info.log_start_offset, (), None, None)
        self.answer(request, ACKS_ALL, [(topic, [self.given_up(topic, ack, errors[0])])])

    def park(self, request: RequestContext, parked: ParkedRequest, timeout_ms: int) -> None:
        parked.park(self._schedule, max(timeout_ms, 0))
        if not parked.done:
            request.on_close(parked.drop)

    # What both shapes need.

    def find(
        self, request: RequestContext, acks: int, topic: Topic, index: int, records: memoryview | None
    ) -> tuple[Partition, memoryview]:
        """The partition to write to, and what. Raises KafkaError if the client may not."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise KafkaError(self._replicas.missing_error(topic, index), "no replica of the partition is here")
        if not ACKS_ALL <= acks <= ACKS_LEADER:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
        if records is None:
            records = NO_RECORDS
        if request.version < FIRST_WITH_ZSTD and len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & 7 == ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        if partition.topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients do not write to {partition.topic}")
        return partition, records

    def refusal(self, topic: Topic, index: int, error: KafkaError) -> PartitionAck:
        self.traffic.failed_produces += 1
        leader = self._leader_instead(topic, index, error.code)
        records: Sequence[tuple[int, str | None]] = ()
        if isinstance(error, RecordError) and error.batch_index >= 0:
            records = ((error.batch_index, error.message),)
        return (index, error.code, -1, -1, -1, records, error.message or None, leader)

    def given_up(self, topic: Topic, ack: PartitionAck, error: int) -> PartitionAck:
        """The answer for a batch that was written and waits no longer for its replicas."""
        index, _, base_offset, append_time_ms, log_start_offset, records, message, _ = ack
        leader = self._leader_instead(topic, index, error)
        return (index, error, base_offset, append_time_ms, log_start_offset, records, message, leader)

    def _leader_instead(self, topic: Topic, index: int, error: int) -> tuple[int, int] | None:
        """Where a client goes that came to the wrong broker, or to one that is the wrong one by now (KIP-951)."""
        return self._replicas.leader_of(topic, index) if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else None

    def answer(
        self, request: RequestContext, acks: int, answer: Sequence[tuple[Topic, Sequence[PartitionAck]]]
    ) -> None:
        request.count_errors(ack[ACK_ERROR] for _, acks_of_topic in answer for ack in acks_of_topic if ack[ACK_ERROR])
        if acks != ACKS_NONE:
            told = [ack[ACK_LEADER] for _, acks_of_topic in answer for ack in acks_of_topic]
            leaders = [leader[0] for leader in told if leader is not None]
            endpoints = node_endpoints(self._image, leaders, request.connection.listener_name) if leaders else ()
            if request.version < FIRST_WITH_STORAGE_ERROR:
                answer = [(topic, [_without_storage_error(ack) for ack in acks_of]) for topic, acks_of in answer]
            request.respond([encode_produce_response(request.version, answer, 0, endpoints)])
            return
        failed = [ack[ACK_ERROR] for _, acks_of_topic in answer for ack in acks_of_topic if ack[ACK_ERROR]]
        if failed:
            request.fail_connection(f"a Produce with acks=0 failed: {ErrorCode(failed[0]).name}")
        else:
            request.no_response()


def _without_storage_error(ack: PartitionAck) -> PartitionAck:
    """For a client that does not know it, and would take it for the end: it looks for the leader."""
    if ack[ACK_ERROR] != ErrorCode.KAFKA_STORAGE_ERROR:
        return ack
    return (ack[0], ErrorCode.NOT_LEADER_OR_FOLLOWER, *ack[2:])
