"""A user whose topics have few names: each is made, used, changed, deleted and made anew, and every time its records are looked for.

What is done by name may come late, to the next topic of that name: a request of which nobody knows the outcome may still wait in a
node that is paused. Producing, reading and deleting go by topic id; after any other that was not answered the name is given up.
"""

import asyncio
from collections.abc import Callable
from random import Random

from ottla.broker.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.broker.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.broker.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.broker.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.broker.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.batch import headers
from ottla.log.records import Record, decode_records, encode_batch
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.workload import RETRY_S, SMALL_SEGMENTS, BrokenPromise, create_topic

BY_ID = 13
"""The first version of Produce, and of Fetch, that names topics by their id."""
FETCH_BYTES = 1 << 20
RECORDS = (3, 20)
PAUSE_MS = 300
BATCH_MAX = 3


class Incarnation:
    """One topic of a name, and what its user was promised of it."""

    def __init__(self, name: str, topic_id: bytes, number: int, partitions: int) -> None:
        self.name, self.topic_id, self.number, self.partitions = name, topic_id, number, partitions
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        """By partition and offset: the value."""
        self.sent = 0

    def __str__(self) -> str:
        return f"topic {self.number} of the name {self.name}"


class IncarnationUser:
    """``brokers`` are where the clients of the cluster find them; ``metadata`` answers what is committed."""

    def __init__(
        self,
        client: Client,
        metadata: Callable[[], MetadataImage],
        rng: Random,
        brokers: list[tuple[str, int]],
        name: str,
    ) -> None:
        self.rounds = self.deleted_records = self.read = 0
        self.current: Incarnation | None = None
        self._client, self._metadata, self._rng, self._brokers = client, metadata, rng, brokers
        self._name, self._names = name, 0
        self._in_doubt = False
        self._gone: dict[bytes, None] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            name = f"{self._name}-{self._names}"
            self.current = topic = await self._create(name)
            for _ in range(self._rng.randint(1, 2)):
                await self._use(topic)
            await self.read_back(topic)
            self.current = None  # from here on nobody knows what is there
            await self._delete(topic)
            self._names += self._in_doubt
            self._in_doubt = False
            self.rounds += 1

    async def _create(self, name: str) -> Incarnation:
        partitions = self._rng.choice((1, 1, 2))
        made = False
        while True:
            if not made:
                # Told that the name is taken, though no topic has it: by a controller that was cut off, of the one before.
                made = (await create_topic(self._client, name, partitions, 3, **SMALL_SEGMENTS)).made
            view = self._metadata().topics_by_name.get(name)
            if view is not None and view.id not in self._gone:
                return Incarnation(name, view.id, self.rounds, len(view.partitions))
            await asyncio.sleep(RETRY_S)

    async def _use(self, topic: Incarnation) -> None:
        for _ in range(self._rng.randint(*RECORDS)):
            await self._produce(topic, self._rng.randrange(topic.partitions))
        act = self._rng.choice((self._delete_records, self._delete_records, self._add_partition, self._change_setting))
        try:
            await act(topic)
        except Unreachable:
            self._in_doubt = True
        await asyncio.sleep(self._rng.randrange(PAUSE_MS) / 1000)

    # --- by id

    def _leader(self, topic: Incarnation, index: int) -> tuple[str, int]:
        """As the metadata has it: what matters here is not how clients find it. Raises Unreachable."""
        view = self._metadata().partition(topic.topic_id, index)
        if view is None or view.leader < 1:
            raise Unreachable("nobody leads")
        return self._brokers[view.leader - 1]

    async def _produce(self, topic: Incarnation, index: int) -> None:
        """A batch, again and again until it is acknowledged: it may stand there several times."""
        values = []
        for _ in range(self._rng.randint(1, BATCH_MAX)):
            topic.sent += 1
            values.append(f"{topic}, record {topic.sent}".encode())
        records = [Record(at, at + 1, None, value) for at, value in enumerate(values)]
        while True:
            try:
                data = TopicProduceData(
                    topic_id=topic.topic_id, partition_data=[PartitionProduceData(index, bytes(encode_batch(records)))]
                )
                request = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[data])
                answer = await self._client.call(self._leader(topic, index), request, ProduceResponse, BY_ID)
                told = answer.responses[0].partition_responses[0]
                if told.error_code == ErrorCode.NONE:
                    kept = topic.acknowledged[index]
                    kept.update({told.base_offset + at: value for at, value in enumerate(values)})
                    return
            except Unreachable:
                pass
            await asyncio.sleep(RETRY_S)

    async def read_back(self, topic: Incarnation) -> None:
        """Until everything that was acknowledged and not deleted was found. Raises BrokenPromise for anything else in its place."""
        for index, acknowledged in enumerate(topic.acknowledged):
            offset = min(acknowledged, default=0)
            while acknowledged and offset <= max(acknowledged):
                found = await self._fetch(topic, index, offset)
                for at, value in found.items():
                    if acknowledged.get(at, value) != value:
                        raise BrokenPromise(
                            f"{topic}, partition {index}, offset {at}: acknowledged was {acknowledged[at]!r}, found {value!r}"
                        )
                gaps = [at for at in acknowledged if offset <= at <= max(found, default=-1) and at not in found]
                if gaps:
                    raise BrokenPromise(f"{topic}, partition {index}: nothing at {gaps[0]}, which was acknowledged")
                offset = max(found, default=offset - 1) + 1
                self.read += len(found)
                if not found:
                    await asyncio.sleep(RETRY_S)

    async def _fetch(self, topic: Incarnation, index: int, offset: int) -> dict[int, bytes]:
        """The values from ``offset`` on, as far as one answer goes; none for any error: it is tried again."""
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        place = FetchTopic(topic_id=topic.topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, max_bytes=FETCH_BYTES, topics=[place])
        try:
            answer = await self._client.call(self._leader(topic, index), request, FetchResponse, BY_ID)
        except Unreachable:
            return {}
        if answer.error_code or not answer.responses or answer.responses[0].partitions[0].error_code:
            return {}
        view = memoryview(answer.responses[0].partitions[0].records or b"")
        return {
            record.offset: bytes(record.value or b"")
            for position, header in headers(view)
            for record in decode_records(view, header, position=position)
            if record.offset >= offset
        }

    async def _delete(self, topic: Incarnation) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.topic_id)], timeout_ms=1000)
        self._gone[topic.topic_id] = None
        while topic.topic_id in self._metadata().topics_by_id:
            try:
                await self._client.ask_any(request, DeleteTopicsResponse)
            except Unreachable:
                await asyncio.sleep(RETRY_S)

    # --- by name. Each raises Unreachable.

    async def _delete_records(self, topic: Incarnation) -> None:
        """Up to any offset that was acknowledged, within a batch too."""
        index = self._rng.randrange(topic.partitions)
        acknowledged = topic.acknowledged[index]
        if not acknowledged:
            return
        offset = self._rng.randint(min(acknowledged), max(acknowledged) + 1)
        topic.acknowledged[index] = {at: value for at, value in acknowledged.items() if at >= offset}
        place = DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(index, offset)])
        leader = self._leader(topic, index)
        answer = await self._client.call(leader, DeleteRecordsRequest([place], 1_000), DeleteRecordsResponse)
        told = answer.topics[0].partitions[0].error_code
        if told == ErrorCode.NONE:
            self.deleted_records += 1
        elif told == ErrorCode.REQUEST_TIMED_OUT:
            self._in_doubt = True

    async def _add_partition(self, topic: Incarnation) -> None:
        wanted = CreatePartitionsTopic(name=topic.name, count=topic.partitions + 1, assignments=None)
        answer = await self._client.ask_any(CreatePartitionsRequest([wanted], 1_000), CreatePartitionsResponse)
        if answer.results[0].error_code == ErrorCode.NONE:
            topic.partitions += 1
            topic.acknowledged.append({})

    async def _change_setting(self, topic: Incarnation) -> None:
        config = AlterableConfig(name="segment.index.bytes", value=str(self._rng.randrange(48, 480)))
        resource = AlterConfigsResource(TOPIC_RESOURCE, topic.name, [config])
        await self._client.ask_any(IncrementalAlterConfigsRequest([resource]), IncrementalAlterConfigsResponse)
