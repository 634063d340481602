"""Copiers with clients that know nothing of us: each record of the input stands once in the output, behind the attempt that wrote it.

A copier notes in its diary, before it asks for the end of an attempt, what the attempt wrote; then how it ended. Whatever it has no
answer for is `unknown`: a reader will find all of it or nothing.
"""

import asyncio
import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.groups.diary import Diary

SESSION_MS, HEARTBEAT_MS = 3_000, 300
TRANSACTION_MS = 20_000
PATIENCE_S = 60.0
STUCK_S = 30.0
"""More than a transaction may take: whoever is in one call for so long will not come back."""
BATCH_S, BATCH_RECORDS = 0.1, 50
ABORTED, EVERY = 2, 6
"""Of a process's attempts the second is given up on purpose, and each sixth after it: by count, so that no run is without one."""


class Job(NamedTuple):
    """``slot``: of a process that dies another takes the place, and the transactional id."""

    bootstrap: str
    source: str
    target: str
    group: str
    slot: int
    slots: int
    partitions: int

    @property
    def transactional_id(self) -> str:
        return f"{self.group}-{self.slot}"


class Attempts:
    """Numbers that no other process gives."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._first = self._next = os.getpid() * 100_000

    def begin(self, records: Iterable[tuple[int, int]]) -> int:
        """What is going to be written, by (partition, number)."""
        self._next += 1
        for partition, number in records:
            self._diary.write("wrote", partition, number, self._next)
        return self._next

    def is_to_abort(self) -> bool:
        return (self._next - self._first) % EVERY == ABORTED

    def ended(self, how: str) -> None:
        self._diary.write(how, -1, -1, self._next)


class Fatal(Exception):
    """This producer can do nothing more; another process takes its place."""


# --- librdkafka: members of a group, whose generation the coordinator looks at (KIP-447) ----------------------------------


class LibrdkafkaCopier:
    def __init__(self, job: Job, attempts: Attempts, diary: Diary) -> None:
        self._job, self._attempts, self._diary = job, attempts, diary
        self._batch: list[Message] = []
        self._failed = False
        servers = {"bootstrap.servers": job.bootstrap}
        self._producer = Producer(
            servers
            | {
                "transactional.id": job.transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS,
                "message.timeout.ms": TRANSACTION_MS,
                "linger.ms": 1,
            }
        )
        self._consumer = Consumer(
            servers
            | {
                "group.id": job.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "fetch.wait.max.ms": 50,
            }
        )

    def run(self) -> None:
        self._insist(lambda: self._producer.init_transactions(5))
        self._consumer.subscribe([self._job.source], on_revoke=self._gone, on_lost=self._gone)
        while True:
            end = time.monotonic() + BATCH_S
            while time.monotonic() < end and len(self._batch) < BATCH_RECORDS:
                message = self._consumer.poll(0.02)
                if message is not None and message.error() is None:
                    self._batch.append(message)
            batch, self._batch = self._batch, []
            if batch:
                self._copy(batch)

    def _gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else will copy what is not in a transaction yet."""
        lost = {each.partition for each in partitions}
        self._batch = [each for each in self._batch if each.partition() not in lost]

    def _copy(self, batch: list[Message]) -> None:
        numbers = [(number(each.partition()), number(each.offset())) for each in batch]
        attempt = self._attempts.begin(numbers)
        ends = {partition: offset + 1 for partition, offset in numbers}
        offsets = [TopicPartition(self._job.source, partition, offset) for partition, offset in ends.items()]
        self._failed = False
        asked = False
        try:
            self._producer.begin_transaction()
            for each in batch:
                value = b"%s %d" % (each.value() or b"", attempt)
                self._producer.produce(
                    self._job.target, value, partition=number(each.partition()), on_delivery=self._delivered
                )
            self._send(offsets)
            if self._attempts.is_to_abort():
                self._abort(batch)
                return
            asked = True
            self._insist(lambda: self._producer.commit_transaction(5))
            self._attempts.ended("committed")
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if asked and not cause.txn_requires_abort():
                self._attempts.ended("unknown")
            if not cause.txn_requires_abort():
                raise Fatal(str(cause)) from error
            self._abort(batch)

    def _send(self, offsets: list[TopicPartition]) -> None:
        """The call ignores its timeout, and does not return where no broker could be reached for a moment: librdkafka 2.16 then begins anew from its
        bootstrap servers and ends what it has of each broker, and the call waits for just that (its log: "Decommissioning 3 broker(s): re-bootstrap",
        then "Handle is terminating in state TRY_CONNECT" a thousand times a second; its issues 5456 and 5511). Another process takes this one's place."""
        group = self._consumer.consumer_group_metadata()
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        try:
            self._insist(lambda: self._producer.send_offsets_to_transaction(offsets, group, 5))
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error is not None

    def _abort(self, batch: list[Message]) -> None:
        self._insist(lambda: self._producer.abort_transaction(5))
        self._attempts.ended("aborted")
        first: dict[int, int] = {}
        for each in batch:
            first.setdefault(number(each.partition()), number(each.offset()))
        mine = {each.partition for each in self._consumer.assignment()}
        self._batch = [each for each in self._batch if each.partition() not in first]
        for partition, offset in first.items():
            if partition in mine:
                self._seek(partition, offset)

    def _seek(self, partition: int, offset: int) -> None:
        """Back to where the attempt began; a partition that is being taken away meanwhile is somebody else's."""
        try:
            self._consumer.seek(TopicPartition(self._job.source, partition, offset))
        except KafkaException:
            self._consumer.unsubscribe()
            raise Fatal(f"cannot go back to {offset} in partition {partition}") from None

    @staticmethod
    def _insist(call: Callable[[], object]) -> None:
        """As clients are to: again, while the error is one that passes."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if not cause.retriable() or time.monotonic() > end:
                    raise


def number(value: int | None) -> int:
    assert value is not None
    return value


# --- aiokafka: partitions of its own, and a transactional id that goes with them -------------------------------------------


async def aiokafka(job: Job, attempts: Attempts) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, transactional_id=job.transactional_id, transaction_timeout_ms=TRANSACTION_MS
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=50,
    )
    await producer.start()  # ends what the process before it left: only then is it known where to go on
    await consumer.start()
    mine = [AioPartition(job.source, each) for each in range(job.slot, job.partitions, job.slots)]
    consumer.assign(mine)
    while True:
        got = await consumer.getmany(timeout_ms=int(1000 * BATCH_S), max_records=BATCH_RECORDS)
        batch = [each for messages in got.values() for each in messages]
        if batch:
            await _aio_copy(job, attempts, producer, consumer, batch)


async def _aio_copy(
    job: Job, attempts: Attempts, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, batch: list[Any]
) -> None:
    attempt = attempts.begin((each.partition, each.offset) for each in batch)
    first: dict[AioPartition, int] = {}
    ends: dict[AioPartition, int] = {}
    for each in batch:
        place = AioPartition(job.source, each.partition)
        first.setdefault(place, each.offset)
        ends[place] = each.offset + 1
    await producer.begin_transaction()
    try:
        for each in batch:
            await producer.send(job.target, b"%s %d" % (each.value, attempt), partition=each.partition)
        await producer.send_offsets_to_transaction(ends, job.group)
        if attempts.is_to_abort():
            await producer.abort_transaction()
            attempts.ended("aborted")
            for place, offset in first.items():
                consumer.seek(place, offset)
            return
    except AioError as error:
        # Its successor aborts what is open. aiokafka's own abort may fail in the same way.
        raise Fatal(repr(error)) from error
    try:
        await producer.commit_transaction()
    except AioError as error:
        attempts.ended("unknown")
        raise Fatal(repr(error)) from error
    attempts.ended("committed")


KINDS = ("librdkafka", "aiokafka", "java")
"""The last has a program of its own (`tests/peers/kafka/Copier.java`), which keeps to what is said here."""


def run(kind: str, job: Job, path: Path) -> None:
    """A copier's whole life; it ends by being killed, or when it can do nothing more."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stacks = path.with_suffix(".stacks").open("w")
    faulthandler.register(signal.SIGUSR1, stacks)
    diary = Diary(path)
    attempts = Attempts(diary)
    try:
        if kind == "librdkafka":
            LibrdkafkaCopier(job, attempts, diary).run()
        else:
            asyncio.run(aiokafka(job, attempts))
    except (Fatal, KafkaException, AioError) as error:
        diary.write("gave-up", -1)
        path.with_suffix(".error").write_text(repr(error), encoding="utf-8")
