"""A Kafka client of the tests: one connection, answers in order, nothing done on its own."""

import asyncio
import itertools
import struct
from typing import Any, TypeVar

import msgspec

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.broker.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.broker.wire.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from ottla.broker.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.broker.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from ottla.log.batch import headers
from ottla.log.records import Record, encode_batch
from ottla.testing.replication.broker import PORT, TOPIC, TOPIC_ID

Answer = TypeVar("Answer", bound=msgspec.Struct)


class Client:
    """A Kafka client: one connection, answers in order."""

    def __init__(self, node_id: int = 1) -> None:
        self._node_id = node_id
        self._ids = itertools.count(1)
        self._reader: asyncio.StreamReader | None = None

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(f"broker-{self._node_id}", PORT)

    def close(self) -> None:
        self._writer.close()

    def send(self, api: str, version: int, body: msgspec.Struct) -> None:
        key = BY_NAME[api].key
        data = encode_request_header(key, version, next(self._ids), "test") + b"".join(
            bytes(part) for part in encoder(type(body), version)(body)
        )
        self._writer.write(struct.pack(">i", len(data)) + data)

    async def receive(self, api: str, version: int, answer: type[Answer]) -> Answer:
        assert self._reader is not None
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        frame = memoryview(await self._reader.readexactly(size))
        _, position = read_response_header(frame, 0, BY_NAME[api].key, version)
        return decoder(answer, version)(frame, position)[0]

    async def produce(self, *values: bytes, version: int = 9, **options: Any) -> PartitionProduceResponse:
        self.send_produce(*values, version=version, **options)
        response = await self.receive("Produce", version, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def send_produce(
        self,
        *values: bytes,
        acks: int = -1,
        topic: str = TOPIC,
        index: int = 0,
        timeout_ms: int = 30_000,
        version: int = 9,
        transactional_id: str | None = None,
        **options: int,
    ) -> None:
        """``options`` are those of ``encode_batch``."""
        data = PartitionProduceData(index, bytes(batch(*values, **options)))
        body = ProduceRequest(transactional_id, acks, timeout_ms, [TopicProduceData(topic, partition_data=[data])])
        self.send("Produce", version, body)

    async def fetch(self, offset: int, *, version: int = 12, **options: Any) -> PartitionData:
        self.send("Fetch", version, fetch_request([(0, offset)], **options))
        response = await self.receive("Fetch", version, FetchResponse)
        return response.responses[0].partitions[0]

    async def list_offset(self, timestamp: int, *, version: int = 7, replica_id: int = -1) -> tuple[int, int, int]:
        """(error, offset, leader epoch)."""
        asked = ListOffsetsPartition(0, -1, timestamp)
        body = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(TOPIC, [asked])])
        self.send("ListOffsets", version, body)
        response = await self.receive("ListOffsets", version, ListOffsetsResponse)
        found = response.topics[0].partitions[0]
        return found.error_code, found.offset, found.leader_epoch

    async def end_transaction(self, producer_id: int, epoch: int, **options: Any) -> int:
        """Writes a marker and answers with the partition's error."""
        self.send_marker(producer_id, epoch, **options)
        return await self.marker_answer()

    def send_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        topic: str = TOPIC,
    ) -> None:
        told = [WritableTxnMarkerTopic(topic, [0])]
        marker = WritableTxnMarker(producer_id, epoch, commit, told, coordinator_epoch, transaction_version)
        self.send("WriteTxnMarkers", 2, WriteTxnMarkersRequest([marker]))

    async def marker_answer(self) -> int:
        response = await self.receive("WriteTxnMarkers", 2, WriteTxnMarkersResponse)
        return response.markers[0].topics[0].partitions[0].error_code

    async def latest(self) -> tuple[int, int]:
        return (await self.list_offset(-1))[:2]

    async def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderPartition(0, -1, epoch)
        body = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(TOPIC, [asked])])
        self.send("OffsetForLeaderEpoch", 4, body)
        response = await self.receive("OffsetForLeaderEpoch", 4, OffsetForLeaderEpochResponse)
        found = response.topics[0].partitions[0]
        assert found.error_code == 0
        return found.leader_epoch, found.end_offset


def batch(*values: bytes, timestamp: int = 1_000, **producer: int) -> bytearray:
    records = [Record(offset, timestamp, None, value) for offset, value in enumerate(values)]
    return encode_batch(records, **producer)  # type: ignore[arg-type]  # an int each


def fetch_request(positions: list[tuple[int, int]], **options: Any) -> FetchRequest:
    limit = options.pop("partition_bytes", 1 << 20)
    partitions = [FetchPartition(index, fetch_offset=offset, partition_max_bytes=limit) for index, offset in positions]
    topics = [FetchTopic(TOPIC, TOPIC_ID, partitions)] if partitions else []
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": -1}
    return FetchRequest(topics=topics, **{**defaults, **options})


def offsets(data: object) -> list[int]:
    assert isinstance(data, bytes | memoryview)
    return [header.base_offset for _, header in headers(data)]
