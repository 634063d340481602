"""A producer that goes on whatever dies, and knows at which offset each of its records stands."""

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

AT_ONCE = 20
"""Records sent between two waits."""


class Feeder:
    """``with Feeder(...) as feeder``: numbers its records 0, 1, 2 ..., in turn on all partitions, until left."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 300_000,
                "compression.type": "lz4",
            }
        )
        self._topic = topic
        self._partitions = partitions
        self._wait_s = AT_ONCE / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.acknowledged: dict[tuple[int, int], int] = {}
        """Number of each record, by partition and offset."""
        self.failures: list[str] = []
        self._sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when all is acknowledged."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._wait_s):
            for _ in range(AT_ONCE):
                self._send(self._sent)
                self._sent += 1
            self._producer.poll(0)
        if left := self._producer.flush(300):
            self.failures.append(f"{left} records were never acknowledged")

    def _send(self, number: int) -> None:
        partition = number % self._partitions
        key, value = str(number % 97), str(number)
        self._producer.produce(self._topic, value, key, partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None or partition is None or offset is None or value is None:
            self.failures.append(str(error))
        else:
            self.acknowledged[partition, offset] = int(value)
