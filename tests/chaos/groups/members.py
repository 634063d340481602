"""Members with clients that know nothing of us. Each reads, notes what it read, and commits exactly that; it never commits
what it does not own any more."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.abc import ConsumerRebalanceListener as AioListener
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata

from tests.chaos.groups.diary import Diary

SESSION_MS, HEARTBEAT_MS, POLL_MAX_MS = 2_000, 300, 10_000
COMMIT_S = 0.1


class Place(NamedTuple):
    """What a member is told when it begins."""

    bootstrap: str
    topic: str
    group: str


class Reading:
    """What a member owns and has read: the same for all clients."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary
        self.next: dict[int, int] = {}
        """By the partitions it owns: the offset behind the last record, -1 before the first."""
        self._committed: dict[int, int] = {}
        self._due_s = 0.0

    def assigned(self, partitions: Iterable[int]) -> None:
        for each in partitions:
            if each not in self.next:
                self.next[each] = -1
                self.diary.write("assigned", each)

    def gone(self, what: str, partitions: Iterable[int]) -> None:
        for each in partitions:
            if self.next.pop(each, None) is not None:
                self._committed.pop(each, None)
                self.diary.write(what, each)

    def record(self, partition: int, offset: int, value: bytes) -> None:
        if partition in self.next:
            self.diary.write("record", partition, offset, int(value))
            self.next[partition] = offset + 1

    def due(self) -> dict[int, int]:
        """What is to be committed now: not with every record."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return {}
        self._due_s = now_s + COMMIT_S
        return self.uncommitted(self.next)

    def uncommitted(self, partitions: Iterable[int]) -> dict[int, int]:
        return {
            each: self.next[each]
            for each in partitions
            if self.next.get(each, -1) >= 0 and self._committed.get(each) != self.next[each]
        }

    def committed(self, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            self._committed[partition] = offset
            self.diary.write("committed", partition, offset)


class Stop:
    """SIGTERM asks a member to leave."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


def librdkafka(place: Place, reading: Reading, settings: dict[str, Any]) -> None:
    stop = Stop()
    consumer = Consumer(
        {
            "bootstrap.servers": place.bootstrap,
            "group.id": place.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": POLL_MAX_MS,
            "fetch.wait.max.ms": 50,
        }
        | settings
    )

    def commit(offsets: dict[int, int]) -> None:
        if not offsets:
            return
        wanted = [TopicPartition(place.topic, partition, offset) for partition, offset in offsets.items()]
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return  # it owns them no longer, or has another generation: whoever reads on reads them again
        reading.committed({each.partition: offsets[each.partition] for each in done or () if each.error is None})

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        reading.assigned(each.partition for each in partitions)

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [each.partition for each in partitions]
        commit(reading.uncommitted(numbers))
        reading.gone("revoked", numbers)

    def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
        reading.gone("lost", [each.partition for each in partitions])

    consumer.subscribe([place.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not stop.asked:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            reading.record(partition, offset, value)
        commit(reading.due())
    consumer.close()


def kafka_python(place: Place, reading: Reading) -> None:
    stop = Stop()
    consumer = KafkaConsumer(
        bootstrap_servers=place.bootstrap.split(","),
        group_id=place.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_MAX_MS,
        fetch_max_wait_ms=50,
    )

    def commit(offsets: dict[int, int]) -> None:
        if not offsets:
            return
        with contextlib.suppress(PythonError):
            consumer.commit(
                {PythonPartition(place.topic, each): OffsetAndMetadata(at, "", -1) for each, at in offsets.items()}
            )
            reading.committed(offsets)

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            """It cannot commit here: its client would wait for itself."""
            reading.gone("revoked", [each.partition for each in revoked])

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            reading.assigned(each.partition for each in assigned)

        def on_partitions_lost(self, lost: Iterable[Any]) -> None:
            reading.gone("lost", [each.partition for each in lost])

    consumer.subscribe([place.topic], listener=Listener())
    while not stop.asked:
        for messages in consumer.poll(50).values():
            for message in messages:
                reading.record(message.partition, message.offset, message.value)
        commit(reading.due())
    consumer.close()


def aiokafka(place: Place, reading: Reading) -> None:
    asyncio.run(_aiokafka(place, reading))


async def _aiokafka(place: Place, reading: Reading) -> None:
    stop = Stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=place.bootstrap,
        group_id=place.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_MAX_MS,
        rebalance_timeout_ms=POLL_MAX_MS,
        fetch_max_wait_ms=50,
    )

    async def commit(offsets: dict[int, int]) -> None:
        if offsets:
            with contextlib.suppress(AioError):
                await consumer.commit({AioPartition(place.topic, each): at for each, at in offsets.items()})
                reading.committed(offsets)

    class Listener(AioListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            numbers = [each.partition for each in revoked]
            await commit(reading.uncommitted(numbers))
            reading.gone("revoked", numbers)

        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            reading.assigned(each.partition for each in assigned)

    consumer.subscribe([place.topic], listener=Listener())
    await consumer.start()
    while not stop.asked:
        for messages in (await consumer.getmany(timeout_ms=50)).values():
            for message in messages:
                reading.record(message.partition, message.offset, message.value)
        await commit(reading.due())
    await consumer.stop()


CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
KINDS: dict[str, Callable[[Place, Reading], None]] = {
    "librdkafka-eager": lambda place, reading: librdkafka(
        place, reading, CLASSIC | {"partition.assignment.strategy": "range"}
    ),
    "librdkafka-cooperative": lambda place, reading: librdkafka(
        place, reading, CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"}
    ),
    "librdkafka-consumer": lambda place, reading: librdkafka(place, reading, {"group.protocol": "consumer"}),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
COOPERATIVE = ("librdkafka-cooperative", "librdkafka-consumer")


def run(kind: str, place: Place, path: Path) -> None:
    """A member's whole life, in a process of its own."""
    diary = Diary(path)
    try:
        KINDS[kind](place, Reading(diary))
    except BaseException:
        diary.write("failed", -1)
        raise
