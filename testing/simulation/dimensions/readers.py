"""Consumers that read while faults happen: with fetch sessions and without, read_committed too, again by offset, and by time.

Every answer is held against what was committed by then (reading.py). Once all has healed each must have come to the end.
"""

from collections.abc import Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from ottla.testing.simulation.consumers import Consumer, Key, Leaders, Searcher
from ottla.testing.simulation.course import PARTITIONS, TOPIC
from ottla.testing.simulation.dimension import Dimension


class Readers(Dimension):
    name = "readers"
    one_in = 2
    _consumers: list[Consumer]
    _searcher: Searcher
    _leaders: Leaders

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._written: dict[Key, int] = {}  # how much there was when it was looked first

    async def prepare(self) -> None:
        run, keys = self.run, [(TOPIC, index) for index in range(PARTITIONS)]
        self._leaders = leaders = Leaders(run.client(), {TOPIC: PARTITIONS})
        self._consumers = [
            Consumer(run.client, run.invariants, leaders, keys, with_session=True),
            Consumer(run.client, run.invariants, leaders, keys, with_session=False, read_committed=True),
        ]
        self._searcher = Searcher(run.client(), run.invariants, leaders, self._consumers[0], keys, self.rng)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._leaders.run()
        yield self._searcher.run()
        for consumer in self._consumers:
            yield from consumer.tasks(self.run.cluster.brokers)

    def missing(self) -> str:
        for number, consumer in enumerate(self._consumers):
            for key, position in consumer.positions.items():
                if position < self._written.setdefault(key, self._committed(key)):
                    return f"consumer {number} is at {position} of {key}, {self._written[key]} were committed"
        return ""

    def _committed(self, key: Key) -> int:
        invariants = self.run.invariants
        return invariants.committed_end(invariants.metadata.topics_by_name[key[0]].id, key[1])

    async def check(self) -> None:
        for consumer in self._consumers:
            consumer.check_reads(self.run.found)

    def progress(self) -> Mapping[str, int]:
        return {"found again": self._searcher.found}

    def counts(self) -> Mapping[str, int]:
        return {
            "records read": sum(len(each) for consumer in self._consumers for each in consumer.numbers.values()),
            "found again": self._searcher.found,
        }


DIMENSION = Readers
