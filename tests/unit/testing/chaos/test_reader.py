"""Since when a read may have been asked for: the client fetches ahead."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from ottla.testing.chaos.workloads import clients
from ottla.testing.chaos.workloads.clients import Counted, Reader
from ottla.testing.checker import Isolation, Read, Recorder
from ottla.testing.checker.history import read


class Waiting:
    """A message in the client's queue."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"v%d" % self._offset


class Queue:
    """A consumer whose queue the test fills."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []

    def assign(self, _: list[TopicPartition]) -> None:
        pass

    def consume(self, most: int, _: float) -> list[Waiting]:
        given, self.waiting = self.waiting[:most], self.waiting[most:]
        return given


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Time goes on by one with each look at it."""
    clock = iter(range(1, 1000))
    monkeypatch.setattr(clients, "now", lambda: next(clock))
    queue = Queue()
    monkeypatch.setattr(clients, "consumer", lambda *_, **__: queue)
    return queue


def reads(queue: Queue, path: Path, *waiting: int, most: int) -> list[Read]:
    """What the history says of reads of ``most`` each, with so many records in the queue before each."""
    with Recorder(path) as recorder:
        reader = Reader("r", "", Counted(recorder), Isolation.UNCOMMITTED)
        reader.assign({("t", 0): 0})
        offset = 0
        for count in waiting:
            queue.waiting += [Waiting(offset + each) for each in range(count)]
            offset += count
            reader.read(0.1, most)
    return [line.operation for line in read(path) if isinstance(line.operation, Read)]


def test_a_read_begins_where_the_queue_was_last_seen_empty(queue: Queue, tmp_path: Path) -> None:
    first, second, third = reads(queue, tmp_path / "history", 1, 1, 1, most=10)
    assert first.begin < first.end
    assert first.begin < second.begin < first.end
    assert second.begin < third.begin < second.end


def test_what_a_full_read_left_in_the_queue_may_be_as_old_as_what_it_gave(queue: Queue, tmp_path: Path) -> None:
    first, second, third = reads(queue, tmp_path / "history", 5, 0, 1, most=3)
    assert second.begin == first.begin
    assert first.end < third.begin < second.end
