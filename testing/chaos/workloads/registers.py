"""A key's last record as a register: written with acks=all, read so that each read takes effect at one moment.

A reader appends a record of its own, a mark, and reads its partition up to it: whatever was acknowledged before the reader began
stands before the mark. A read that only goes up to where some broker says that the end is would prove nothing, for a leader that
was deposed and does not know it yet may answer.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import Message

from ottla.testing.chaos.workloads.clients import Reader, Stream, key_of, offset_of, value_of
from ottla.testing.chaos.workloads.workload import Actor, Workload
from ottla.testing.checker import Get, Isolation, Outcome, now

PROCESSES = 3
KEYS = 4
PAUSE_S = 0.02
WRITE_S, READ_S = 20.0, 10.0


class Registers(Workload):
    name = "registers"
    description = "a register per key, written with acks=all and read back: linearizable"

    def actors(self) -> Sequence[Callable[[], Actor]]:
        return [partial(Process, self, f"r{number}") for number in range(PROCESSES)]


class Process:
    """One operation after another."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._name = name
        self._rng = workload.rng(name)
        self._history = workload.history
        self._bootstrap = workload.site.bootstrap_servers
        [self._topic] = workload.topics
        self._partitions = workload.PARTITIONS
        self._stream = Stream(name, self._bootstrap, self._history)
        self._views = [View(self, index) for index in range(self._partitions)]

    def step(self) -> None:
        number = self._rng.randrange(KEYS)
        key, partition = f"k{number}", number % self._partitions
        if self._rng.random() < 0.5:
            self._stream.wait(self._stream.send(self._topic, partition, key), WRITE_S)
        else:
            self._read(key, partition)
        self._stream.poll(PAUSE_S)

    def _read(self, key: str, partition: int) -> None:
        operation = Get(topic=self._topic, key=key, process=self._name, begin=now(), outcome=Outcome.FAIL)
        mark = self._stream.send(self._topic, partition)
        if self._stream.wait(mark, WRITE_S):
            view = self._views[partition]
            if view.read_to(mark.offset, mark.value, READ_S):
                operation.value, operation.outcome = view.values.get(key), Outcome.OK
            else:
                view.close()
                self._views[partition] = View(self, partition, view.generation + 1)
        operation.end = now()
        self._history.write(operation)

    def reader(self, partition: int, generation: int) -> Reader:
        reader = Reader(f"{self._name}-{partition}.{generation}", self._bootstrap, self._history, Isolation.UNCOMMITTED)
        reader.assign({(self._topic, partition): 0})
        return reader

    def close(self) -> None:
        self._stream.close()
        for each in self._views:
            each.close()


class View:
    """What one partition says of each key, as far as it was asked for."""

    def __init__(self, process: Process, partition: int, generation: int = 0) -> None:
        self.generation = generation
        self.values: dict[str, str] = {}
        self._ahead: deque[Message] = deque()
        self._reader = process.reader(partition, generation)

    def read_to(self, offset: int, value: str, seconds: float) -> bool:
        """Whether the record that was written there is there. ``offset`` -1: nobody said where."""
        until = now() + int(seconds * 1e9)
        while now() < until and not self._reader.is_lost:
            while self._ahead:
                message = self._ahead.popleft()
                if (key := key_of(message)) is not None:
                    self.values[key] = value_of(message)
                if value_of(message) == value:
                    return True
                if 0 <= offset <= offset_of(message):
                    return False
            self._ahead.extend(self._reader.read(0.1))
        return False

    def close(self) -> None:
        self._reader.close()
