"""A coordinator of each broker's keeps counters in an internal topic (ledger.py), and users count.

No two who were told that theirs is committed may have the same number of a key, and none may be forgotten. At rest the state of
whoever leads is what the partition says.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

from ottla.broker import internal_topics
from ottla.broker.broker import Broker
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.process import Process
from ottla.testing.simulation.coordinated import in_small_segments
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.ledger import REFUSED, TOPIC, Ledger, Shard, numbers_in
from ottla.testing.simulation.violations import InvariantViolation
from ottla.testing.simulation.workload import BrokenPromise

PARTITIONS = 2
KEYS = 3
USERS = 3
PAUSE_MS = (5, 60)
_START = Broker.start


class Ledgers(Dimension):
    name = "ledgers"
    one_in = 5
    settings: Mapping[str, str] = {"share.coordinator.state.topic.num.partitions": str(PARTITIONS)}

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._ledgers: dict[int, tuple[Process, Ledger]] = {}
        self._told: dict[bytes, dict[int, None]] = {}
        self._counted = [0] * PARTITIONS
        self._loaded = 0
        self.limits = ((Broker, "start", self._starting()), (internal_topics, "internal_topic", in_small_segments))

    def _starting(self) -> Callable[..., None]:
        def start(broker: Broker, on_ready: Callable[[], None]) -> None:
            process = self.run.loop.current_process
            self._ledgers[broker.context.node_id] = process, Ledger(broker, self._note_loaded)
            _START(broker, on_ready)

        return start

    async def prepare(self) -> None:
        """Every broker wants the topic at once."""
        told: list[int] = []
        for number, broker in self.run.servers.items():
            process = self.run.cluster.nodes[number].process
            assert process is not None
            process.run(broker.context.internal_topics.require, TOPIC, told.append, 5_000)
        await self.run.until(lambda: "" if len(told) == len(self.run.servers) else "some wait", "there is a ledger", 10)
        if set(told) != {ErrorCode.NONE}:
            raise BrokenPromise(f"the ledger's topic could not be made: {told}")
        self.run.keep(TOPIC)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._count(Random(self.rng.getrandbits(64))) for _ in range(USERS)]

    async def _count(self, rng: Random) -> None:
        """Asks any broker that runs, whoever leads."""
        while True:
            await asyncio.sleep(rng.randint(*PAUSE_MS) / 1000)
            number, index = rng.choice([*self.run.cluster.nodes]), rng.randrange(PARTITIONS)
            key = f"{index}/{rng.randrange(KEYS)}".encode()
            process, ledger = self.run.cluster.nodes[number].process, self._ledger(number)
            if ledger is not None and process is not None and not process.paused:
                process.run(ledger.count, index, key, partial(self._note, index, key))

    def _ledger(self, number: int) -> Ledger | None:
        """That of the process that runs there now."""
        process, ledger = self._ledgers.get(number, (None, None))
        return ledger if process is not None and process is self.run.cluster.nodes[number].process else None

    def _note(self, index: int, key: bytes, number: int) -> None:
        if number == REFUSED:
            return
        told = self._told.setdefault(key, {})
        if number in told:
            self.run.invariants.violated(
                "a coordinator's records are its own", f"two were told {number} of {key.decode()}"
            )
        told[number] = None
        self._counted[index] += 1

    def _note_loaded(self, keys: int) -> None:
        self._loaded += keys

    def missing(self) -> str:
        for index in range(PARTITIONS):
            leader = self.run.invariants.metadata.topics_by_name[TOPIC].partitions[index].leader
            shards = {number: shard for number in self.run.servers if (shard := self._shard(number, index)) is not None}
            if [*shards] != [leader] or not shards[leader].active:
                return f"shard {index} is on {[*shards]}, and {leader} leads"
        return ""

    def _shard(self, number: int, index: int) -> Shard | None:
        ledger = self._ledger(number)
        return ledger.shards.get(index) if ledger is not None else None

    def progress(self) -> Mapping[str, int]:
        return {f"counted in shard {index}": count for index, count in enumerate(self._counted)}

    async def check(self) -> None:
        for index in range(PARTITIONS):
            self._check_shard(index)

    def _check_shard(self, index: int) -> None:
        leader = self.run.invariants.metadata.topics_by_name[TOPIC].partitions[index].leader
        shard = self._ledgers[leader][1].shards[index]
        said: dict[bytes, int] = {}
        log = shard.partition.log
        offset = log.log_start_offset
        while data := log.read(offset, 1 << 20).data if offset < log.log_end_offset else b"":
            said.update(numbers_in(data, offset))
            offset = log.read(offset, 1 << 20).next_offset
        if shard.numbers != said:
            raise InvariantViolation(
                "a coordinator's state is what its partition says", f"shard {index}: {shard.numbers} and not {said}"
            )
        for key, told in self._told.items():
            if key.startswith(f"{index}/".encode()) and max(told) > said.get(key, 0):
                raise BrokenPromise(f"{max(told)} of {key.decode()} was told, {said.get(key)} is there")

    def counts(self) -> Mapping[str, int]:
        return {"counted in ledgers": sum(self._counted), "loaded by ledgers": self._loaded}


DIMENSION = Ledgers
