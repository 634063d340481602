"""What all workloads do with clients: settings that give up within a run, and errors as outcomes."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.testing.chaos.workloads import renumbered
from ottla.testing.checker import Isolation, Outcome, Produce, Read, Recorder, now
from ottla.testing.checker.operations import Operation

MESSAGE_TIMEOUT_MS = 120_000
"""Longer than faults last: a producer of librdkafka that gives one record up writes those behind it again, as if they were others."""
FLUSH_S = 25.0
DROP_TRIES = 5
_IMPATIENT = {
    "socket.timeout.ms": 5_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 0,  # what they say to people is recorded as outcomes
}


_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)


class Counted:
    """A history of which it is known how much of it went well."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.acknowledged = 0

    def unclean(self, topic: str, partition: int, begin: int, end: int, from_offset: int) -> None:
        self._recorder.unclean(topic, partition, begin, end, from_offset)

    def write(self, operation: Operation) -> None:
        self._recorder.write(operation)
        if operation.outcome is Outcome.OK:
            self.acknowledged += 1


def producer(bootstrap: str, **settings: Any) -> Producer:
    """Idempotent, acks=all."""
    told = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 0,
        "request.timeout.ms": 4_000,
        "message.timeout.ms": MESSAGE_TIMEOUT_MS,
        "retry.backoff.max.ms": 500,
    }
    return Producer(told | _IMPATIENT | settings)


BROKEN = (KafkaException, SystemError)
"""What flush and poll raise of a producer that can do nothing more. confluent-kafka sets the fatal error and may call back yet: Python then
finds an error that nobody raised."""


def told_at() -> int:
    """When something was called back; with an error set, as above, the first call fails and takes that away."""
    try:
        return now()
    except SystemError:
        return now()


def flushed(client: Producer, seconds: float) -> int:
    """How many records are left. One that can do nothing more says so, and has told of each what came of it."""
    try:
        return client.flush(seconds)
    except BROKEN:
        return len(client)


def drop(client: Producer) -> None:
    """Its records that are under way are given up."""
    client.purge()
    for _ in range(DROP_TRIES):
        if not flushed(client, 1):
            return


def consumer(bootstrap: str, **settings: Any) -> Consumer:
    """Of no group; where its position is gone it says so."""
    told = {
        "bootstrap.servers": bootstrap,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 250,
        "fetch.error.backoff.ms": 100,
    }
    return Consumer(told | _IMPATIENT | settings)


def impatient(bootstrap: str) -> dict[str, Any]:
    """Of an admin client."""
    return {"bootstrap.servers": bootstrap, **_IMPATIENT}


def cause(error: KafkaException) -> KafkaError:
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


def acknowledged_offset(message: Message) -> int:
    """-1: a later record's acknowledgement told librdkafka that this one is written, too, and not where."""
    found = message.offset()
    return -1 if found is None else found


def offset_of(message: Message) -> int:
    found = message.offset()
    assert found is not None
    return found


def partition_of(message: Message) -> int:
    found = message.partition()
    assert found is not None
    return found


def value_of(message: Message) -> str:
    return (message.value() or b"").decode()


def key_of(message: Message) -> str | None:
    found = message.key()
    return None if found is None else found.decode()


def topic_of(message: Message) -> str:
    found = message.topic()
    assert found is not None
    return found


class Stream:
    """A producer of numbered records, none of which waits for another. One that broke is followed by one of another name."""

    def __init__(self, name: str, bootstrap: str, history: Counted, **settings: Any) -> None:
        self.name = name
        self._bootstrap, self._history, self._settings = bootstrap, history, settings
        self._generation = 0
        self._sequence = 0
        self._renumbered = -1
        self._is_broken = False
        self._log = renumbered.logger(self._renumbers)
        self._producer = self._new()

    def _new(self) -> Producer:
        return producer(self._bootstrap, logger=self._log, **renumbered.SETTINGS, **self._settings)

    def send(
        self,
        topic: str,
        partition: int,
        key: str | None = None,
        timestamp: int = -1,
        done: Callable[[Produce], None] = lambda each: None,
    ) -> Produce:
        """``done`` is told when it is known what came of it; so is the history."""
        if self._is_broken:
            self._renew()
        self._sequence += 1
        who = f"{self.name}.{self._generation}"
        each = Produce(
            topic=topic,
            partition=partition,
            value=f"{who}-{self._sequence}",
            key=key,
            producer=who,
            sequence=self._sequence,
            timestamp=timestamp,
            process=who,
            begin=now(),
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            each.end = told_at()
            if error is None:
                each.offset, each.outcome = acknowledged_offset(message), Outcome.OK
            else:
                self._note(each, error)
            each.idempotent = each.begin > self._renumbered
            self._history.write(each)
            done(each)

        try:
            when = max(timestamp, 0)  # 0: now
            self._producer.produce(topic, each.value, key, partition, timestamp=when, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            each.end, each.outcome, each.error = now(), Outcome.FAIL, str(error)
            self._history.write(each)
            done(each)
            self._is_broken = self._is_broken or isinstance(error, KafkaException)
        return each

    def _note(self, each: Produce, error: KafkaError) -> None:
        """It was given up, which does not say that it was not written; those behind it may be written twice."""
        each.outcome, each.error = Outcome.UNKNOWN, error.str()
        self._renumbered = each.end
        self._is_broken = self._is_broken or error.fatal() or error.code() == KafkaError._FATAL

    def _renumbers(self) -> None:
        """What is under way now may be written twice."""
        self._renumbered = now()

    def poll(self, seconds: float) -> None:
        """That long, whatever comes meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._serve(left)

    def _serve(self, seconds: float) -> None:
        """A fatal error is raised wherever events are waited for; what came of each record is told all the same."""
        try:
            self._producer.poll(seconds)
        except BROKEN:
            self._is_broken = True
            time.sleep(seconds)

    def wait(self, each: Produce, seconds: float) -> bool:
        """Whether it was acknowledged in that time."""
        until = now() + int(seconds * 1e9)
        while each.outcome is Outcome.UNKNOWN and not each.error and now() < until:
            self._serve(0.05)
        return each.outcome is Outcome.OK

    def _renew(self) -> None:
        """A fatal error ends a producer."""
        drop(self._producer)
        self._is_broken = False
        self._generation += 1
        self._sequence = 0
        self._producer = self._new()

    def close(self) -> None:
        """What is under way ends, or is given up."""
        if flushed(self._producer, FLUSH_S):
            drop(self._producer)


class Reader:
    """A consumer of assigned partitions that notes all it is given, and where it has come to. A client fetches ahead, and gives what
    waits in its queue also after it has told of a truncation: a read begins where the queue was last seen empty."""

    def __init__(self, name: str, bootstrap: str, history: Counted, isolation: Isolation, **settings: Any) -> None:
        self.name, self._history, self.isolation = name, history, isolation
        self._consumer = consumer(bootstrap, **{"isolation.level": str(isolation), **settings})
        self.positions: dict[tuple[str, int], int] = {}
        self.is_lost = False
        """What it stood at is not there any more."""
        self._fetched_since = now()
        """What it gives next was asked for at that time at the earliest."""

    def assign(self, positions: dict[tuple[str, int], int]) -> None:
        self.positions = dict(positions)
        self._fetched_since = now()
        self._consumer.assign([TopicPartition(topic, index, at) for (topic, index), at in positions.items()])

    def read(self, seconds: float, most: int = 500) -> list[Message]:
        """What came, in the order of each partition."""
        begin, asked = self._fetched_since, now()
        messages = self._consumer.consume(most, seconds)
        end = now()
        if len(messages) < most:
            self._fetched_since = asked
        good = [each for each in messages if each.error() is None]
        for each in messages:
            if (error := each.error()) is not None:
                self._failed(error, each, asked, end)
        by_place: dict[tuple[str, int], list[Message]] = {}
        for each in good:
            by_place.setdefault((topic_of(each), partition_of(each)), []).append(each)
        for place, found in by_place.items():
            self._note(place, found, begin, end)
        return good

    def _note(self, place: tuple[str, int], found: list[Message], begin: int, end: int) -> None:
        following = offset_of(found[-1]) + 1
        self._history.write(
            Read(
                topic=place[0],
                partition=place[1],
                records=[(offset_of(each), value_of(each)) for each in found],
                start=self.positions[place],
                next=following,
                isolation=self.isolation,
                process=self.name,
                begin=begin,
                end=end,
                outcome=Outcome.OK,
            )
        )
        self.positions[place] = following

    def _failed(self, error: KafkaError, message: Message, begin: int, end: int) -> None:
        topic, partition = message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            return
        self.is_lost = self.is_lost or error.code() in _LOST
        self._history.write(
            Read(
                topic=topic or "",
                partition=-1 if partition is None else partition,
                process=self.name,
                begin=begin,
                end=end,
                outcome=Outcome.FAIL,
                error=error.str(),
            )
        )

    def close(self) -> None:
        self._consumer.close()
