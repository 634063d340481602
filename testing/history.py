"""A producer whose every acknowledgement is remembered, and the check that nothing of it was lost or doubled."""

import itertools
import threading
import time
from types import TracebackType

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.testing.checker import Outcome, Produce, Read, check

CONSUME_TIMEOUT_S = 60


class AcknowledgedProducer:
    """``with AcknowledgedProducer(...) as history``: numbers its records 0, 1, 2 ... on one partition until left."""

    def __init__(self, bootstrap_servers: str, topic: str, interval_s: float = 0.005) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer(settings)
        self._servers = bootstrap_servers
        self._topic = topic
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acknowledged-producer")
        self.acknowledged: list[tuple[int, int]] = []  # (number, offset)
        self.times: list[float] = []  # when each acknowledgement came
        self.failures: list[str] = []
        self.sent = 0

    def __enter__(self) -> "AcknowledgedProducer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(self.sent), partition=0, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(self._interval_s)
        self._producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        value, offset = message.value(), message.offset()
        assert value is not None
        assert offset is not None
        self.acknowledged.append((int(value), offset))
        self.times.append(time.monotonic())

    def longest_silence_s(self, since: float) -> float:
        """The longest time between two acknowledgements after ``since`` (time.monotonic())."""
        times = [since, *(at for at in self.times if at >= since)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def read_back(self) -> list[tuple[int, int]]:
        """(number, offset) of every record of the partition, in order."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "history", "enable.auto.commit": False})
        partition = TopicPartition(self._topic, 0, OFFSET_BEGINNING)
        _, end = consumer.get_watermark_offsets(partition, timeout=CONSUME_TIMEOUT_S)
        consumer.assign([partition])
        found: list[tuple[int, int]] = []
        last_came = time.monotonic()
        while not found or found[-1][1] < end - 1:
            got = consumer.consume(1000, timeout=0.1)
            if got:
                last_came = time.monotonic()
            silence = time.monotonic() - last_came
            assert silence < CONSUME_TIMEOUT_S, f"offset {found[-1][1] if found else 0} of {end} was the last that came"
            for message in got:
                value, offset = message.value(), message.offset()
                assert message.error() is None, message.error()
                assert value is not None
                assert offset is not None
                found.append((int(value), offset))
        consumer.close()
        return found

    def check(self) -> None:
        """Raises AssertionError when an acknowledged record is not at its offset, or any record stands twice or out of order."""
        offsets = dict(self.acknowledged)
        sent = [self._operation(number, offsets.get(number, -1)) for number in range(self.sent)]
        found = [(offset, str(number)) for number, offset in self.read_back()]
        end = found[-1][0] + 1
        there = Read(topic=self._topic, partition=0, records=found, start=0, next=end, final=True, outcome=Outcome.OK)
        report = check([*sent, there])
        assert report.valid, str(report)

    def _operation(self, number: int, offset: int) -> Produce:
        outcome = Outcome.OK if offset >= 0 else Outcome.UNKNOWN
        value = str(number)
        return Produce(
            topic=self._topic, partition=0, value=value, producer="one", sequence=number, offset=offset, outcome=outcome
        )
