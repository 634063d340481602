"""Read, process, write in transactions: of each record of one topic there is exactly one in another, and none of what was aborted."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.testing.chaos.workloads.assign import Following
from ottla.testing.chaos.workloads.clients import (
    BROKEN,
    Counted,
    acknowledged_offset,
    cause,
    consumer,
    drop,
    offset_of,
    partition_of,
    producer,
    told_at,
    topic_of,
)
from ottla.testing.chaos.workloads.groups import CLASSIC, committed_finally
from ottla.testing.chaos.workloads.sequences import Numbers
from ottla.testing.chaos.workloads.workload import Actor, Workload
from ottla.testing.checker import Isolation, Outcome, Produce, Transaction, now

COPIERS = ("c0", "c1")
TRANSACTION_MS = 10_000
PATIENCE_S = 15.0
PAUSE_S = 0.2
BATCH_RECORDS, BATCH_S = 30, 0.1
ABORTED_OF = 6
"""One of so many is given up on purpose."""
LIFE_TRANSACTIONS = (5, 40)


class Transactions(Workload):
    name = "transactions"
    description = "copies in transactions, some aborted on purpose, and a reader of what is committed: exactly once"

    def __init__(self, replication: int = 3, topic_settings: dict[str, str] | None = None) -> None:
        super().__init__(replication, topic_settings)
        self.sending_offsets: set[str] = set()
        """Threads that are in that call of librdkafka, which may never return."""

    def topic_names(self) -> list[str]:
        return [f"{self.name}-{self.site.seed}-{each}" for each in ("source", "target")]

    def group_names(self) -> list[str]:
        return [f"{self.name}-{self.site.seed}"]

    def id_names(self) -> list[str]:
        return [f"{group}-{each}" for group in self.group_names() for each in COPIERS]

    def actors(self) -> Sequence[Callable[[], Actor]]:
        return [
            partial(Numbers, self, "p", self.topics[:1]),
            partial(Following, self, "f", Isolation.COMMITTED, self.topics[1:]),
            *(partial(Copier, self, each) for each in COPIERS),
        ]

    @contextmanager
    def noted_as_sending(self) -> Iterator[None]:
        name = threading.current_thread().name
        self.sending_offsets.add(name)
        try:
            yield
        finally:
            self.sending_offsets.discard(name)

    def stop(self) -> None:
        """Sending offsets ignores its timeout and may wait for a coordinator that is gone for ever (librdkafka's issues 5456 and 5511).
        Who sits there is left behind: whoever takes its transactional id in the end fences it."""
        try:
            super().stop()
        except TimeoutError:
            if not {each.name for each in self._threads if each.is_alive()} <= self.sending_offsets:
                raise

    def read_finally(self) -> None:
        """What was left open is aborted first, by whoever takes its transactional id."""
        for each in self.transactional_ids:
            transactional(self.site.bootstrap_servers, each).init_transactions(PATIENCE_S)
        super().read_finally()
        source = self.topics[0]
        committed_finally(self, self.groups[0], [(source, index) for index in range(self.PARTITIONS)])


def transactional(bootstrap: str, name: str) -> Producer:
    """Within a transaction nothing is sent for longer than it may take."""
    limits = {"transaction.timeout.ms": TRANSACTION_MS, "message.timeout.ms": TRANSACTION_MS}
    return producer(bootstrap, **{"transactional.id": name, **limits})


class Copier:
    """A member of a group that copies what it reads. One that can do nothing more, or has lived long enough, is followed by
    another with the same transactional id."""

    def __init__(self, workload: Transactions, name: str) -> None:
        self._workload, self._base = workload, name
        self._history: Counted = workload.history
        self._rng = workload.rng(name)
        self._source, self._target = workload.topics
        self._group = workload.groups[0]
        self._generation = -1
        self._number = 0
        self._ids = count()
        self._consumer: Consumer | None = None
        self._batch: list[Message] = []

    def _begin(self) -> None:
        self._generation += 1
        self._left = self._rng.randrange(*LIFE_TRANSACTIONS)
        bootstrap = self._workload.site.bootstrap_servers
        self._producer = transactional(bootstrap, f"{self._group}-{self._base}")
        self._insist(lambda: self._producer.init_transactions(5))
        told = {"group.id": self._group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._consumer = consumer(bootstrap, **told, **CLASSIC)
        self._consumer.subscribe([self._source], on_revoke=self._gone, on_lost=self._gone)

    def _gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else copies what is not in a transaction yet."""
        gone = {each.partition for each in partitions}
        self._batch = [each for each in self._batch if partition_of(each) not in gone]

    def step(self) -> None:
        try:
            if self._consumer is None:
                self._begin()
                return
            self._collect(self._consumer)
            batch, self._batch = self._batch, []
            if batch:
                self._left -= 1
                self._copy(self._consumer, batch)
            if self._left <= 0:
                self._end()
        except BROKEN:
            self._end()  # what it was doing is in the history
            time.sleep(PAUSE_S)

    def _collect(self, reading: Consumer) -> None:
        until = time.monotonic() + BATCH_S
        while time.monotonic() < until and len(self._batch) < BATCH_RECORDS:
            message = reading.poll(0.02)
            if message is not None and message.error() is None:
                self._batch.append(message)

    def _copy(self, reading: Consumer, batch: list[Message]) -> None:
        """Raises KafkaException when this producer can do nothing more."""
        self._number += 1
        name = f"{self._base}.{self._generation}.{self._number}"
        offsets = {partition_of(each): offset_of(each) + 1 for each in batch}
        self._producer.begin_transaction()
        for place, each in enumerate(batch):
            self._send(name, place, each)
        told = [TopicPartition(self._source, partition, offset) for partition, offset in offsets.items()]
        metadata = reading.consumer_group_metadata()
        try:
            with self._workload.noted_as_sending():
                self._insist(lambda: self._producer.send_offsets_to_transaction(told, metadata, 5))
            self._flush()
            if self._rng.randrange(ABORTED_OF) == 0:
                self._abort(name)
                self._go_back(reading, batch)
            else:
                self._commit(name)
        except KafkaException as error:
            if cause(error).txn_requires_abort():
                self._abort(name)
            raise

    @staticmethod
    def _go_back(reading: Consumer, batch: list[Message]) -> None:
        """Raises KafkaException where a partition is being taken away meanwhile."""
        first: dict[int, int] = {}
        for each in batch:
            first.setdefault(partition_of(each), offset_of(each))
        for partition, offset in first.items():
            reading.seek(TopicPartition(topic_of(batch[0]), partition, offset))

    def _send(self, transaction: str, place: int, message: Message) -> None:
        partition = partition_of(message)
        each = Produce(
            topic=self._target,
            partition=partition,
            value=f"{transaction}-{place}",
            transaction=transaction,
            source=f"{topic_of(message)}-{partition}@{offset_of(message)}",
            process=self._base,
            begin=now(),
            id=next(self._ids),
        )
        self._history.write(each)  # who is left behind tells nothing of it any more

        def delivered(error: KafkaError | None, told: Message) -> None:
            each.end = told_at()
            if error is None:
                each.offset, each.outcome = acknowledged_offset(told), Outcome.OK
            else:
                each.error = error.str()
            self._history.write(each)

        self._producer.produce(self._target, each.value, partition=partition, on_delivery=delivered)

    def _commit(self, name: str) -> None:
        """Unknown is what nobody was told of: a reader finds all of it or nothing."""
        end = Transaction(transaction=name, action="commit", process=self._base, begin=now())
        try:
            self._insist(lambda: self._producer.commit_transaction(5))
            end.outcome = Outcome.OK
        except KafkaException as error:
            end.error = str(error)
            if cause(error).txn_requires_abort():
                end.outcome = Outcome.FAIL
            raise
        finally:
            if end.outcome is not Outcome.UNKNOWN:
                end.end = now()
            self._history.write(end)

    def _abort(self, name: str) -> None:
        end = Transaction(transaction=name, action="abort", process=self._base, begin=now())
        try:
            self._insist(lambda: self._producer.abort_transaction(5))
            end.end, end.outcome = now(), Outcome.OK
        except KafkaException as error:
            end.error = str(error)
            raise
        finally:
            self._history.write(end)

    def _flush(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while self._producer.flush(0.5) and time.monotonic() < until and not self._workload.is_stopping:
            pass

    def _insist(self, call: Callable[[], object]) -> None:
        """Again, while the error is one that passes. Who is asked to stop has little patience."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not cause(error).retriable() or time.monotonic() > until or self._workload.is_stopping:
                    raise

    def _end(self) -> None:
        self._batch = []
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            drop(self._producer)

    def close(self) -> None:
        self._end()
