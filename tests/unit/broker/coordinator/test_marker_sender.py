"""Markers on their way to partitions' leaders: what goes when, and what is left when a broker, a leader or a topic goes."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from unittest.mock import patch

from ottla.broker.coordinator import marker_sender
from ottla.broker.coordinator.decisions.transactions.effects import Marker
from ottla.broker.coordinator.decisions.transactions.marker_queue import BACKOFF_MS_MAX, LOOKS_MAX
from ottla.broker.coordinator.marker_sender import MarkerSender
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.replication.markers import Marker as PartitionMarker
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from ottla.broker.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import TopicView
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.server import ServerConfig
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.broker.handlers.conftest import broker_view, partition_view

CONFIG = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "9@c:9093",
    "controller.listener.names": "C",
    "log.dirs": "/data",
}
VERSION = 2


class Link:
    """A connection that is up when the test says so."""

    def __init__(
        self, broker_id: int, _settings: Any, _timers: Any, on_up: Callable[[], None], on_lost: Callable[[bool], None]
    ) -> None:
        self.on_up, self.on_lost = on_up, on_lost
        self.address: Any = None
        self.room = 0
        self.broken: list[str] = []
        self.asked: list[tuple[WriteTxnMarkersRequest, Callable[[memoryview, int], Any]]] = []
        self.sizes: list[int] = []
        self.knows = VERSION
        self.closed = False
        LINKS[broker_id] = self

    def move(self, address: Any) -> bool:
        moved, self.address = bool(address != self.address), address
        return moved

    def connect(self) -> None: ...

    def worked(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def version(self, key: int, least: int, greatest: int) -> int:
        return self.knows

    def break_off(self, reason: str) -> None:
        self.broken.append(reason)

    def request(self, key: int, version: int, body: bytes, on_answer: Callable[[memoryview, int], Any]) -> None:
        self.sizes.append(len(body))
        self.asked.append((decoder(WriteTxnMarkersRequest, version)(memoryview(body), 0)[0], on_answer))

    def up(self) -> None:
        self.room = 64
        self.on_up()

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        asked, on_answer = self.asked.pop(0)
        told = [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name, [WritableTxnMarkerPartitionResult(each, error) for each in topic.partition_indexes]
                    )
                    for topic in marker.topics
                ],
            )
            for marker in asked.markers
        ]
        body = b"".join(encoder(WriteTxnMarkersResponse, VERSION)(WriteTxnMarkersResponse(told)))
        on_answer(memoryview(body), 0)

    @property
    def told(self) -> list[list[tuple[int, str, list[int]]]]:
        """Producer ids, topics and partitions, by request."""
        return [
            [
                (marker.producer_id, topic.name, topic.partition_indexes)
                for marker in asked.markers
                for topic in marker.topics
            ]
            for asked, _ in self.asked
        ]


LINKS: dict[int, Link] = {}


class Bench:
    """Node 1; ``t-0`` is led by it, ``t-1`` by broker 2, ``t-2`` by 3."""

    def __init__(self) -> None:
        LINKS.clear()
        self.image = MetadataImage()
        self.image.brokers = {each: broker_view(each) for each in (1, 2, 3)}
        views = [partition_view((1, 2, 3), (1, 2, 3), leader) for leader in (1, 2, 3)]
        self.image.topics_by_name["t"] = TopicView("t", b"t" * 16, dict(enumerate(views)))
        self.timers = FakeTimers()
        self.here: list[tuple[str, int, PartitionMarker, Callable[[int], None]]] = []
        self.refuses: ErrorCode | None = None
        self.done: list[int] = []
        self.sender = MarkerSender(ServerConfig(CONFIG, "host"), self.image, self.timers, self._write_here)

    def _write_here(self, topic: str, index: int, marker: PartitionMarker, on_done: Callable[[int], None]) -> None:
        if self.refuses is not None:
            raise KafkaError(self.refuses, "not now")
        self.here.append((topic, index, marker, on_done))

    def send(self, producer_id: int, *indexes: int) -> Any:
        marker = Marker(producer_id, 4, True, 7, 2)
        partitions = {"t": frozenset(indexes)}
        return self.sender.send(marker, partitions, lambda: self.done.append(producer_id))

    def lead(self, index: int, leader: int) -> None:
        self.image.topics_by_name["t"].partitions[index] = partition_view((1, 2, 3), (1, 2, 3), leader)
        delta = MetadataDelta()
        delta.partitions[b"t" * 16, index] = None
        self.sender.publish(delta, self.image)

    async def turn(self) -> None:
        for _ in range(2):
            await asyncio.sleep(0)


def on_a_bench(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        with patch.object(marker_sender, "BrokerLink", Link):
            await scenario(Bench())

    def test() -> None:
        asyncio.run(run())

    return test


@on_a_bench
async def test_what_falls_into_one_turn_goes_to_each_broker_in_one_request(bench: Bench) -> None:
    bench.send(5, 1, 2)
    bench.send(6, 1)
    await bench.turn()
    assert not LINKS[2].asked, "the connection is not up yet"
    LINKS[2].up()
    LINKS[3].up()
    await bench.turn()
    assert LINKS[2].told == [[(5, "t", [1]), (6, "t", [1])]]
    assert LINKS[3].told == [[(5, "t", [2])]]
    LINKS[2].answer()
    await bench.turn()
    assert bench.done == [6]
    LINKS[3].answer()
    await bench.turn()
    assert bench.done == [6, 5]


@on_a_bench
async def test_what_waited_for_a_broker_goes_in_requests_that_it_takes(bench: Bench) -> None:
    """A larger one would end the connection, and come again as large."""
    topics = [f"{number:0249}" for number in range(100)]
    for name in topics:
        bench.image.topics_by_name[name] = TopicView(name, b"n" * 16, {0: partition_view((2,), (2,), 2)})
    for producer_id in range(100):
        marker = Marker(producer_id, 4, True, 7, 2)
        partitions = dict.fromkeys(topics, frozenset((0,)))
        bench.sender.send(marker, partitions, partial(bench.done.append, producer_id))
    await bench.turn()
    link = LINKS[2]
    link.up()
    while len(bench.done) < 100:
        await bench.turn()
        assert link.asked
        link.room = 64
        link.answer()
        await bench.turn()
    assert sum(link.sizes) > ConnectionLimits().plain_bytes_max
    assert max(link.sizes) <= ConnectionLimits().plain_bytes_max // 4
    assert bench.done == list(range(100))


@on_a_bench
async def test_here_each_partition_answers_for_itself(bench: Bench) -> None:
    bench.send(5, 0)
    bench.send(6, 0)
    assert not bench.here, "not before `send` returns"
    await bench.turn()
    (first, second) = bench.here
    assert first[:3] == ("t", 0, PartitionMarker(5, 4, True, 7, 2))
    second[3](ErrorCode.NONE)
    await bench.turn()
    assert bench.done == [6]
    first[3](ErrorCode.NONE)
    await bench.turn()
    assert bench.done == [6, 5]
    assert not LINKS


@on_a_bench
async def test_what_is_refused_here_is_tried_again_after_a_pause(bench: Bench) -> None:
    bench.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.send(5, 0)
    await bench.turn()
    bench.timers.advance(19)
    await bench.turn()
    bench.refuses = None
    assert not bench.here
    bench.timers.advance(1)
    await bench.turn()
    (marker,) = bench.here
    marker[3](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    bench.timers.advance(40)
    await bench.turn()
    assert len(bench.here) == 2


@on_a_bench
async def test_what_a_broker_refuses_is_tried_again_after_a_pause(bench: Bench) -> None:
    bench.send(5, 1)
    await bench.turn()
    LINKS[2].up()
    await bench.turn()
    LINKS[2].answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    await bench.turn()
    assert not LINKS[2].asked
    bench.timers.advance(20)
    await bench.turn()
    LINKS[2].answer()
    await bench.turn()
    assert bench.done == [5]


@on_a_bench
async def test_what_a_broken_connection_leaves_open_is_told_when_there_is_one_again(bench: Bench) -> None:
    bench.send(5, 1)
    await bench.turn()
    LINKS[2].up()
    await bench.turn()
    LINKS[2].asked.clear()
    LINKS[2].room = 0
    LINKS[2].on_lost(True)
    await bench.turn()
    assert not LINKS[2].asked
    LINKS[2].up()
    await bench.turn()
    LINKS[2].answer()
    await bench.turn()
    assert bench.done == [5]


@on_a_bench
async def test_another_leader_is_told_without_waiting_for_the_one_before(bench: Bench) -> None:
    bench.send(5, 1)
    await bench.turn()
    bench.lead(1, 3)
    await bench.turn()
    LINKS[3].up()
    await bench.turn()
    LINKS[3].answer()
    await bench.turn()
    assert bench.done == [5]
    LINKS[2].up()
    await bench.turn()
    assert not LINKS[2].asked


@on_a_bench
async def test_without_a_leader_it_waits_for_one(bench: Bench) -> None:
    bench.lead(1, -1)
    bench.send(5, 1)
    await bench.turn()
    assert not bench.done
    assert not LINKS
    bench.lead(1, 1)
    await bench.turn()
    assert len(bench.here) == 1


@on_a_bench
async def test_a_deleted_topic_is_told_nothing_and_keeps_no_transaction_open(bench: Bench) -> None:
    bench.send(5, 1)
    await bench.turn()
    delta = MetadataDelta()
    delta.deleted_topics[b"t" * 16] = bench.image.topics_by_name.pop("t")
    bench.sender.publish(delta, bench.image)
    bench.send(6, 1)
    await bench.turn()
    assert bench.done == []
    for _ in range(LOOKS_MAX):
        bench.timers.advance(BACKOFF_MS_MAX)
        await bench.turn()
    assert bench.done == [5, 6]


@on_a_bench
async def test_nobody_is_called_back_for_what_was_cancelled(bench: Bench) -> None:
    here, there, nowhere = bench.send(5, 0), bench.send(6, 1), bench.send(7)
    await bench.turn()
    here.cancel()
    there.cancel()
    bench.here[0][3](ErrorCode.NONE)
    LINKS[2].up()
    await bench.turn()
    assert not LINKS[2].asked
    assert bench.done == [7]
    nowhere.cancel()


@on_a_bench
async def test_one_with_nobody_to_tell_that_is_cancelled_in_its_turn_is_not_called_back(bench: Bench) -> None:
    bench.send(7).cancel()
    await bench.turn()
    assert not bench.done


@on_a_bench
async def test_a_broker_that_knows_no_transactions_is_left_until_it_was_upgraded(bench: Bench) -> None:
    bench.send(5, 1)
    await bench.turn()
    LINKS[2].knows = -1
    LINKS[2].on_up()
    await bench.turn()
    assert LINKS[2].broken == ["it knows no transactions: upgrade it"]
    assert not LINKS[2].asked


@on_a_bench
async def test_a_broker_that_moved_is_asked_at_its_new_address(bench: Bench) -> None:
    bench.send(5, 1)
    await bench.turn()
    LINKS[2].up()
    await bench.turn()
    bench.image.brokers[2] = broker_view(2, listeners=("OTHER", "PLAINTEXT"))
    delta = MetadataDelta()
    delta._entries["brokers"] = {2: None}
    LINKS[2].address = None
    LINKS[2].room = 0
    bench.sender.publish(delta, bench.image)
    await bench.turn()
    LINKS[2].asked.clear()
    LINKS[2].up()
    await bench.turn()
    assert LINKS[2].told == [[(5, "t", [1])]]
    bench.sender.close()
    assert LINKS[2].closed
