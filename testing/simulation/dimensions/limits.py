"""Limits that are reached: fetch answers that are full, batches larger than what is left in them or than a partition may have,
sessions refused and evicted, and partitions that lie idle with a backlog.

`hoard` has many partitions. All are written to at once, in bursts, also while a node is away, and are idle then: nothing but
the fetches themselves may bring a follower, or a consumer with a session, what it lacks. A live broker is unregistered
meanwhile: it registers again, and has its place in partitions of which nobody speaks.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.broker.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from ottla.log.batch import headers
from ottla.log.records import Record
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.workload import FETCH_VERSION, RETRY_S, BrokenPromise, History, SimulatedProducer

HOARD = "hoard"
UNREGISTER = "unregister"
AWAY_MS = 3_000  # long enough to be out of the ISRs
BACK_MS = 1_000  # a broker that was unregistered has registered again
INTERVAL_S = 0.2
POLLS_MAX = 200
"""And one for each record: an answer may have room for a single one."""


class Limits(Dimension):
    name = "limits"
    one_in = 3

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._partitions = rng.choice((3, 6, 9))
        self._sizes = [rng.choice((10, 300, 3_000, 9_000)) for _ in range(7)]
        self._bursts_ms = sorted(rng.sample(range(200, 5_500), 3))
        self._answer_bytes = rng.choice((2_000, 10_000, 30_000))
        self.settings = {
            "replica.fetch.response.max.bytes": str(self._answer_bytes),
            "replica.fetch.max.bytes": rng.choice(("500", "5000", "1048576")),
            "fetch.max.bytes": str(self._answer_bytes),
            "max.incremental.fetch.session.cache.slots": rng.choice(("0", "1", "2", "1000", "1000", "1000")),
        }
        self._healed = asyncio.Event()
        self._to_unregister: asyncio.Queue[int] = asyncio.Queue()
        self._unregistered = self._polls = 0
        self._producers: list[Hoarder] = []

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        away_ms = max(0, self._bursts_ms[1] - self.rng.randrange(AWAY_MS // 2))
        yield Fault(min(away_ms, until_ms - AWAY_MS), "kill", (self.rng.choice(nodes),), AWAY_MS)
        if self.rng.randrange(2):
            time_ms = self.rng.randrange(until_ms // 2, until_ms - BACK_MS)
            yield Fault(time_ms, UNREGISTER, (self.rng.choice(nodes),), BACK_MS)

    def kinds(self) -> Mapping[str, FaultKind]:
        return {UNREGISTER: FaultKind(self._unregister, stops=True)}

    def _unregister(self, loop: SimulationLoop, node: str) -> Callable[[], None]:
        self._to_unregister.put_nowait(int(node.removeprefix("node-")))
        return lambda: None

    async def prepare(self) -> None:
        await self.run.create_topic(HOARD, self._partitions, segment_index_bytes="96", retention_ms="-1")
        for index in range(self._partitions):
            sizes = self._sizes[index % 7 :] + self._sizes[: index % 7]
            producer = Hoarder(self.run.client(), Hoard(HOARD, index, sizes=sizes), self._bursts_ms, self._healed)
            self._producers.append(producer)
            self.run.add_producer(producer)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._unregister_brokers(self.run.client())

    async def _unregister_brokers(self, client: Client) -> None:
        while True:
            request = UnregisterBrokerRequest(broker_id=await self._to_unregister.get())
            while True:
                try:
                    answer = await client.ask_any(request, UnregisterBrokerResponse)
                    if answer.error_code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
                        self._unregistered += 1
                        break
                except Unreachable:
                    pass
                await asyncio.sleep(RETRY_S)

    def missing(self) -> str:
        self._healed.set()  # every replica is in sync, and nobody had to write for it
        return ""

    async def check(self) -> None:
        """All is idle again: a session must bring every record of every partition."""
        client, due = self.run.client(), {}
        for index in range(self._partitions):
            due[index] = self.run.invariants.committed_end(self._topic_id(), index)
        described, brokers = await client.topic(HOARD)
        for leader in dict.fromkeys(each.leader_id for each in described.partitions):
            led = [each.partition_index for each in described.partitions if each.leader_id == leader]
            reader = SessionReader(client, brokers[leader], {index: due[index] for index in led}, self._answer_bytes)
            self._polls += await reader.read_all()

    def _topic_id(self) -> bytes:
        return self.run.invariants.metadata.topics_by_name[HOARD].id

    def counts(self) -> Mapping[str, int]:
        return {
            "bursts": sum(each.bursts for each in self._producers),
            "unregistered": self._unregistered,
            "fetches of all that was hoarded": self._polls,
        }


DIMENSION = Limits


@dataclass
class Hoard(History):
    """``sizes`` of its records, in turn."""

    sizes: Sequence[int] = field(default_factory=lambda: [0])

    def record(self, number: int, offset: int) -> Record:
        size = self.sizes[number % len(self.sizes)]
        return super().record(number, offset)._replace(value=str(number).encode().ljust(size, b"."))


class Hoarder(SimulatedProducer):
    """Writes a few records at given times, is silent between them, and goes on once all is whole again."""

    history: Hoard

    def __init__(self, client: Client, history: Hoard, bursts_ms: Sequence[int], healed: asyncio.Event) -> None:
        super().__init__(client, history, INTERVAL_S)
        self._bursts_ms = bursts_ms
        self._healed_again = healed
        self.bursts = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self._take_producer_id()
        for burst_ms in self._bursts_ms:
            await asyncio.sleep(max(0.0, began_s + burst_ms / 1000 - loop.time()))
            for _ in range(3):
                await self._write()
            self.bursts += 1
        await self._healed_again.wait()
        while True:
            await self._write()
            await asyncio.sleep(self._interval_s)

    async def _write(self) -> None:
        number = self.history.sent
        self.history.sent += 1
        self._note(number, await self._send(number))


class SessionReader:
    """A consumer that keeps a fetch session, as the Java client does: it names what moved, and nothing else."""

    def __init__(self, client: Client, where: tuple[str, int], due: Mapping[int, int], max_bytes: int) -> None:
        self._client = client
        self._where = where
        self._due = due
        self._max_bytes = max_bytes
        self._positions = dict.fromkeys(due, 0)

    async def read_all(self) -> int:
        """Until it has everything; how many fetches that took. Raises BrokenPromise."""
        named, session, epoch = dict(self._positions), 0, 0
        polls_max = POLLS_MAX + sum(self._due.values())
        for polls in range(1, polls_max):
            answer = await self._fetch(named, session, epoch)
            session, epoch = answer.session_id, epoch + 1
            moved = self._take(answer)
            if all(position >= self._due[index] for index, position in self._positions.items()):
                return polls
            if not session:
                epoch, moved = 0, dict(reversed(self._positions.items()))  # none was given: all is named, in turn
                self._positions = moved
            named = moved
        raise BrokenPromise(
            f"a session at {self._where} has {self._positions} of {self._due} after {polls_max} fetches"
        )

    async def _fetch(self, named: Mapping[int, int], session: int, epoch: int) -> FetchResponse:
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=self._max_bytes)
            for index, offset in named.items()
        ]
        topics = [FetchTopic(topic=HOARD, partitions=wanted)] if wanted else []
        request = FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=self._max_bytes,
            session_id=session,
            session_epoch=epoch,
            topics=topics,
        )
        answer = await self._client.call(self._where, request, FetchResponse, FETCH_VERSION)
        if answer.error_code:
            raise BrokenPromise(f"a fetch session ended with {ErrorCode(answer.error_code).name}")
        return answer

    def _take(self, answer: FetchResponse) -> dict[int, int]:
        moved: dict[int, int] = {}
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    raise BrokenPromise(f"{HOARD}-{partition.partition_index}: {ErrorCode(partition.error_code).name}")
                for _, header in headers(memoryview(partition.records or b"")):
                    moved[partition.partition_index] = header.next_offset
        self._positions.update(moved)
        return moved
