"""Sends requests that are broken in every way to a node in the simulation, and looks how it stands them.

python -m ottla.testing.hostile.run --seeds 20            # 500 requests each
python -m ottla.testing.hostile.run --seed 17             # one, as a failing test says
python -m ottla.testing.hostile.run --seed 17 --trace     # with each request
python -m ottla.testing.hostile.run --controllers ...     # at the controllers' listener
"""

import argparse
import asyncio
import logging
import resource
import sys
import time
from random import Random
from typing import NamedTuple

from ottla.broker.server import Server
from ottla.broker.wire.apis import FETCH, PRODUCE
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.testing.hostile.expected import WrongAnswer
from ottla.testing.hostile.requests import KINDS, TOPIC, HostileMaker, mutated, request, sent
from ottla.testing.hostile.visiting import Ears, Visit
from ottla.testing.simulation.client import BrokerConnection, Unreachable
from ottla.testing.simulation.cluster import CLIENT_PORT, CONTROLLER_PORT, SimulatedCluster

REQUESTS = 500
TOPIC_EVERY = 50
PIPELINED, PIPELINED_BYTES_MAX = 0.1, 100_000
"""So many go out together with what was sent before."""
SETTINGS = {"default.replication.factor": "1", "min.insync.replicas": "1"}
HOST = "node-1"
LOOK_S = 0.02
ANSWERED_S = 100.0  # by then also what waits for a controller for a minute has its answer
CPU_S_MAX = 2.0
GROWTH_BYTES_MAX = 128 << 20
KEPT_BYTES_MAX = 1 << 20
MAY_WAIT_FOR_EVER = (PRODUCE, FETCH)  # the client says how long, and acks=0 is not answered


class HostileFailure(Exception):
    """The node did not stand it. The message says which command replays it."""


class Counts(NamedTuple):
    """What became of the requests."""

    answered: int = 0
    closed: int = 0
    waiting: int = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Siege:
    """One node, one hostile client, and another one that must be served all the while."""

    def __init__(self, loop: SimulationLoop, seed: int, requests: int, trace: bool, port: int = CLIENT_PORT) -> None:
        self._port = port
        self._seed = seed
        self._rng = Random(f"hostile {seed}")
        self._requests = requests
        self._trace = trace
        self._cluster = SimulatedCluster(loop, nodes=1, settings=SETTINGS)
        self._ears = Ears()
        self._loop = loop
        self.counts = Counts()
        self._waiting: list[Visit] = []
        self._last = b""

    async def run(self) -> Counts:
        logging.getLogger("ottla").addHandler(self._ears)
        try:
            await self._come_up()
            for number in range(self._requests):
                await self._one(number)
            await self._at_last()
        except (WrongAnswer, AssertionError, Unreachable) as problem:
            raise HostileFailure(self._told(str(problem))) from problem
        finally:
            logging.getLogger("ottla").removeHandler(self._ears)
        return self.counts

    def _told(self, problem: str) -> str:
        number = sum(self.counts)
        command = f"python -m ottla.testing.hostile.run --seed {self._seed} --requests {self._requests}"
        command += " --controllers" if self._port == CONTROLLER_PORT else ""
        return f"request {number} of seed {self._seed}: {problem}\nsent: {self._last[:300].hex()}\nreplay: {command} --trace"

    async def _come_up(self) -> None:
        self._cluster.start()
        await asyncio.sleep(0.05)
        await self._server().ready.wait()
        self._other = await BrokerConnection.open(HOST, CLIENT_PORT)
        self._maker = HostileMaker(b"")
        besieged = await BrokerConnection.open(HOST, self._port)
        offered = (await besieged.call(ApiVersionsRequest("other", "1"), ApiVersionsResponse)).api_keys
        besieged.close()
        served = [
            (each.api_key, version) for each in offered for version in range(each.min_version, each.max_version + 1)
        ]
        kinds = [*KINDS, *served, *served, *served]  # what is not served ends with its header
        self._kinds = self._rng.sample(kinds * (1 + self._requests // len(kinds)), self._requests)
        self._visit: Visit | None = None

    async def _create(self, name: str) -> bytes:
        """The id of the topic, or none where it is there already."""
        body = CreateTopicsRequest([CreatableTopic(name, 3, 1)])
        answer = await self._other.call(body, CreateTopicsResponse)
        assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), answer
        return answer.topics[0].topic_id

    async def _ensure_topic(self) -> None:
        created = await self._create(TOPIC)
        if created != ZERO_ID:
            self._maker.topic_id = created

    def _server(self) -> Server:
        server = self._cluster.running(1)
        assert server is not None, "the node ended"
        return server

    async def _one(self, number: int) -> None:
        if number % TOPIC_EVERY == 0:  # somebody may have deleted it
            await self._ensure_topic()
        key, version = self._kinds[number]
        content = request(self._maker, key, version, number, self._rng)
        if not content:
            return
        data = sent(mutated(content, self._rng), self._rng)
        if self._rng.random() < PIPELINED:
            data = self._last + data
        self._last = data[:PIPELINED_BYTES_MAX]
        if self._trace:
            sys.stdout.write(f"{number} API {key} version {version}: {data.hex()}\n")
        if self._visit is None:
            self._visit = Visit(*await asyncio.open_connection(HOST, self._port))
        began, grown = time.process_time(), _peak_bytes()
        closings = self._ears.closings
        self._visit.send(data)
        left = await self._visit.look(LOOK_S)
        self._judge(self._visit, bool(left), closings)
        await self._is_well()
        took, grown = time.process_time() - began, _peak_bytes() - grown
        assert took < CPU_S_MAX, f"{len(data)} bytes cost {took:.1f} s"
        assert grown < GROWTH_BYTES_MAX, f"{len(data)} bytes took {grown >> 20} MB"

    def _judge(self, visit: Visit, is_waiting: bool, closings: int) -> None:
        if visit.closed:
            assert self._ears.closings == closings + 1, "the connection was closed without a line in the log"
        if visit.closed or is_waiting or not visit.answered:
            self._visit = None
            if is_waiting:
                self._waiting.append(visit)
            else:
                visit.end()
        self.counts = self.counts.plus(
            Counts(closed=1) if visit.closed else Counts(waiting=1) if is_waiting else Counts(answered=1)
        )

    async def _is_well(self) -> None:
        """Somebody else is served."""
        asked = ApiVersionsRequest("other", "1")
        answer = await self._other.call(asked, ApiVersionsResponse)
        assert answer.error_code == 0
        assert not self._ears.mistakes, f"the node logged a mistake of its own: {self._ears.mistakes[0]}"
        assert not self._loop.unhandled, f"nobody handled: {self._loop.unhandled[0]}"

    async def _at_last(self) -> None:
        """It takes records as before, and holds nothing any more."""
        if self._visit is not None:
            self._visit.end()
        await asyncio.sleep(ANSWERED_S)
        await self._is_well()
        for visit in self._waiting:
            never = [asked for asked in await visit.look(LOOK_S) if asked.key not in MAY_WAIT_FOR_EVER]
            assert visit.closed or not never, f"{never} is never answered"
            visit.end()
        await self._create("afterwards")
        await asyncio.sleep(1)
        batch = bytes(encode_batch([Record(0, 1_000, None, b"value")]))
        topic = TopicProduceData("afterwards", partition_data=[PartitionProduceData(0, batch)])
        answer = await self._other.call(ProduceRequest(None, -1, 1_000, [topic]), ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        broker = self._server().broker
        assert broker is not None
        held = broker.network.budget.used
        assert held < KEPT_BYTES_MAX, f"{held} bytes are still held for clients that are gone"
        self._other.close()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run_seed(seed: int, requests: int = REQUESTS, *, trace: bool = False, port: int = CLIENT_PORT) -> Counts:
    """``port``: which listener is besieged. Raises HostileFailure."""

    async def program(loop: SimulationLoop) -> Counts:
        return await Siege(loop, seed, requests, trace, port).run()

    return simulate(program, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--controllers", action="store_true", help="besiege the controllers' listener")
    options = parser.parse_args()
    logging.getLogger("ottla").propagate = options.trace
    seeds = range(options.seeds) if options.seed is None else [options.seed]
    port = CONTROLLER_PORT if options.controllers else CLIENT_PORT
    counts, failed = Counts(), 0
    for seed in seeds:
        try:
            counts = counts.plus(run_seed(seed, options.requests, trace=options.trace, port=port))
        except HostileFailure as failure:
            failed += 1
            sys.stdout.write(f"{failure}\n")
    sys.stdout.write(f"{counts}, {time.process_time():.1f} s of CPU, {failed} seeds failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
