"""Consumers that read from a follower near them (KIP-392) while faults happen, and one that asks anybody."""

from collections.abc import Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from ottla.testing.simulation.cluster import CLIENT_PORT
from ottla.testing.simulation.consumers import Leaders
from ottla.testing.simulation.course import PARTITIONS, TOPIC
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.near_consumers import Departures, NearConsumer

SELECTORS = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "rack-aware")


class Near(Dimension):
    name = "near"
    one_in = 4
    _consumer: NearConsumer
    _leaders: Leaders

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.settings: Mapping[str, str] = {"replica.selector.class": rng.choice(SELECTORS)}
        self._racks = rng.choice((2, 3))
        self._written: dict[int, int] = {}

    def settings_of(self, number: int) -> Mapping[str, str]:
        return {"broker.rack": f"rack-{number % self._racks}"}

    async def prepare(self) -> None:
        run, rng = self.run, self.rng
        self._leaders = Leaders(run.client(), {TOPIC: PARTITIONS})
        self._consumer = NearConsumer(
            run.client,
            run.invariants,
            self._leaders,
            [(TOPIC, index) for index in range(PARTITIONS)],
            rng,
            {number: (node.name, CLIENT_PORT) for number, node in run.cluster.nodes.items()},
            self._metadata_of,
            Departures(run.invariants, TOPIC, run.loop.time),
            rack=f"rack-{rng.randrange(self._racks)}",
            wanders=rng.randrange(3) == 0,
            with_session=rng.randrange(2) == 0,
            read_committed=rng.randrange(3) == 0,
        )

    def _metadata_of(self, number: int) -> int:
        server = self.run.servers.get(number)
        return server.context.image.offset if server is not None else -1

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._leaders.run(), *self._consumer.tasks(self.run.cluster.brokers)]

    def missing(self) -> str:
        for (topic, index), position in self._consumer.positions.items():
            end = self._written.setdefault(index, self.run.invariants.committed(topic, index).end)
            if position < end:
                return f"who reads near by is at {position} of {topic}-{index}, {end} were committed"
        return ""

    async def check(self) -> None:
        self._consumer.check_reads(self.run.found)

    def counts(self) -> Mapping[str, int]:
        return {"sent to who is near": self._consumer.sent, "answers of followers": self._consumer.read_near}


DIMENSION = Near
