"""One run: a seed, its faults, producers and topic users; then the faults end, the cluster heals, and everything is read.

result = run_seed(17)          # raises SimulationFailure with the story and the command that replays it
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from ottla.broker.directories import METADATA_DIRECTORY
from ottla.quorum.metadata.views import TopicView
from ottla.runtime.simulation.faults import Fault, last_end_ms
from ottla.runtime.simulation.loop import DeadlockError, LivelockError, SimulationLoop, TimeLimitError
from ottla.runtime.simulation.run import run_on
from ottla.testing.simulation.client import Client
from ottla.testing.simulation.cluster import DATA, SimulatedCluster
from ottla.testing.simulation.invariants import Invariants, InvariantViolation
from ottla.testing.simulation.observer import observed
from ottla.testing.simulation.plan import Faults, draw, draw_rot
from ottla.testing.simulation.rot import ROT, is_sound
from ottla.testing.simulation.rot import SETTINGS as SCRUBBED
from ottla.testing.simulation.topics import TopicUser
from ottla.testing.simulation.workload import (
    BrokenPromise,
    History,
    SimulatedProducer,
    check_history,
    create_topic,
    read_partition,
)

NODES = 3
FAULTS_UNTIL_MS = 6000
ROTTEN_ONE_IN = 4
HEAL_S = 20.0
LIMIT_S = 90.0
TOPIC, PARTITIONS = "flights", 3
# A segment holds few batches: its indexes, of an entry a batch, are full soon. The records are of 1970: age is no reason.
SMALL_SEGMENTS = {"segment_index_bytes": "96", "index_interval_bytes": "0", "retention_ms": "-1"}
COMPACTED, FORGETFUL = "prices", "quotes"
KEYS = 5
POLL_S = 0.02
EVENTS_SHOWN = 120


class RunResult(NamedTuple):
    """``digest`` and ``events`` are the trace's: equal for equal runs. Times in seconds.

    ``rolled`` and ``forgotten`` segments, cleanings that removed something, snapshots of the metadata that were taken and that
    were installed, on all nodes.
    """

    seed: int
    digest: int
    events: int
    acknowledged: int
    rolled: int
    cleaned: int
    forgotten: int
    snapshots: int
    installed: int
    virtual_s: float
    healed_s: float


class SimulationFailure(Exception):
    """A run that broke an invariant. ``events`` are the last of each node, in order of time."""

    def __init__(self, seed: int, faults: Sequence[Fault], error: BaseException, events: str) -> None:
        super().__init__(f"seed {seed}: {error}\nreplay: python -m ottla.testing.simulation.run --seed {seed}")
        self.seed = seed
        self.faults = list(faults)
        self.error = error
        self.events = events

    @property
    def invariant(self) -> str:
        """Which one."""
        return self.error.invariant if isinstance(self.error, InvariantViolation) else type(self.error).__name__


def plain_brokers_of(seed: int) -> int:
    """Every fourth cluster has a broker that is no controller."""
    return int(seed % 4 == 0)


def faults_of(seed: int) -> list[Fault]:
    """The faults that belong to a seed. A plain broker loses its metadata once: a voter's memory is not its own to lose. Disks
    rot in one of four."""
    rng = Random(f"{seed}/faults")
    names = [f"node-{number}" for number in range(1, NODES + plain_brokers_of(seed) + 1)]
    faults = draw(rng, names, FAULTS_UNTIL_MS)
    for name in names[NODES:]:
        duration_ms = rng.randint(1, 1500)
        time_ms = rng.randint(0, FAULTS_UNTIL_MS - duration_ms)
        faults.append(Fault(time_ms, "wipe", (name, f"{DATA}/{METADATA_DIRECTORY}"), duration_ms))
    rotting = Random(f"{seed}/rot")
    if not rotting.randrange(ROTTEN_ONE_IN):
        faults.append(draw_rot(rotting, names, FAULTS_UNTIL_MS))
    return sorted(faults, key=lambda fault: fault.time_ms)


def run_seed(
    seed: int, faults: Sequence[Fault] | None = None, on_loop: Callable[[SimulationLoop], None] | None = None
) -> RunResult:
    """``faults``: others than the seed's own. ``on_loop`` gets the loop before it runs. Raises SimulationFailure."""
    chosen = faults_of(seed) if faults is None else list(faults)
    loop = SimulationLoop(seed)
    if on_loop is not None:
        on_loop(loop)
    run = _Run(loop, chosen)
    try:
        with observed(run.invariants), _errors_noticed(run):
            run_on(loop, run.main, limit_s=LIMIT_S)
    except (InvariantViolation, BrokenPromise, DeadlockError, LivelockError, TimeLimitError) as error:
        raise SimulationFailure(seed, chosen, run.invariants.first or error, loop.trace.tail(EVENTS_SHOWN)) from error
    finally:
        loop.close()
    trace = loop.trace
    return RunResult(
        seed, trace.digest, trace.count, run.acknowledged, *run.invariants.storage, loop.now_ns / 1e9, run.healed_s
    )


class _Run:
    """The course of a run, in virtual time."""

    def __init__(self, loop: SimulationLoop, faults: Sequence[Fault]) -> None:
        self.acknowledged = 0
        self.healed_s = 0.0
        self._loop = loop
        self._faults = faults
        self._rotten = any(fault.kind == ROT for fault in faults)
        settings = SCRUBBED if self._rotten else None
        self._cluster = SimulatedCluster(loop, NODES, settings=settings, plain_brokers=plain_brokers_of(loop.seed))
        self.invariants = Invariants(self._cluster)
        self._clients: list[Client] = []
        self._producers: list[SimulatedProducer] = []
        self._topics = TopicUser(self._client())
        self._users: list[asyncio.Task[None]] = []

    async def main(self, loop: SimulationLoop) -> None:
        """Raises InvariantViolation or BrokenPromise as soon as there is one."""
        over = asyncio.Event()
        self.invariants.on_violation.append(over.set)
        driving = asyncio.ensure_future(self._drive())
        driving.add_done_callback(lambda _: over.set())
        try:
            await over.wait()
            if self.invariants.first is not None:
                raise self.invariants.first
            await driving
        finally:
            driving.cancel()
            await self._dismiss()

    async def _dismiss(self) -> None:
        """The users go home: nothing of theirs stays open."""
        for user in self._users:
            user.cancel()
        await asyncio.gather(*self._users, return_exceptions=True)
        for client in self._clients:
            client.close()

    async def _drive(self) -> None:
        self._cluster.start()
        await self._until(self._all_ready, "the cluster starts", 5.0)
        await self._create_topics()
        self._users += [asyncio.ensure_future(producer.run()) for producer in self._producers]
        self._users.append(asyncio.ensure_future(self._topics.run()))
        for user in self._users:
            user.add_done_callback(self._user_ended)
        await self._weather()
        await self._heal()
        await self._everyone_goes_on()
        for user in self._users:
            user.cancel()
        await self._read_back()

    async def _create_topics(self) -> None:
        client = self._client()
        compacted = {"min_cleanable_dirty_ratio": "0.01", **SMALL_SEGMENTS}
        await create_topic(client, TOPIC, PARTITIONS, 3, **SMALL_SEGMENTS)
        await create_topic(client, COMPACTED, 1, 3, cleanup_policy="compact", **compacted)
        await create_topic(
            client, FORGETFUL, 1, 3, cleanup_policy="compact,delete", retention_bytes="2000", **compacted
        )
        for index in range(PARTITIONS):
            self._add_producer(History(TOPIC, index), 0.04 * (index + 1))
        self._add_producer(History(COMPACTED, 0, KEYS), 0.08, 3)
        self._add_producer(History(FORGETFUL, 0, KEYS, oldest_go=True), 0.09, 2)

    def _add_producer(self, history: History, interval_s: float, batch: int = 1) -> None:
        producer = SimulatedProducer(self._client(), history, interval_s, batch)
        producer.on_acknowledged = self._note
        self._producers.append(producer)

    def _client(self) -> Client:
        client = Client(self._cluster.brokers)
        self._clients.append(client)
        return client

    def _note(self, topic: str, index: int, offset: int) -> None:
        self.acknowledged += 1
        self.invariants.acknowledged(topic, index, offset)

    def _user_ended(self, user: "asyncio.Task[None]") -> None:
        if not user.cancelled() and (error := user.exception()) is not None:
            self.invariants.violated("users get answers a correct cluster gives", str(error) or repr(error))

    async def _weather(self) -> None:
        faults = Faults(self._cluster, lambda: self.invariants.metadata, self.invariants.metadata_wiped)
        self.invariants.on_metadata.append(faults.metadata_changed)
        faults.schedule(self._faults)
        await asyncio.sleep(last_end_ms(self._faults) / 1000 + 0.001)

    async def _heal(self) -> None:
        """When faults end, a user must not have to restart anything by hand."""
        began_s = self._loop.time()
        await self._until(self._all_ready, "every node takes requests again", HEAL_S)
        await self._until(self._all_in_sync, "every replica is in sync again", HEAL_S)
        if self._rotten:
            await self._until(self._all_sound, "every replica is whole again", HEAL_S)
            await self._until(self._all_in_sync, "every replica is in sync again", HEAL_S)
        self.healed_s = self._loop.time() - began_s

    async def _everyone_goes_on(self) -> None:
        before = [len(producer.history.acknowledged) for producer in self._producers]
        topics = self._topics.rounds

        def stuck() -> str:
            now = [len(producer.history.acknowledged) for producer in self._producers]
            waiting = [index for index, count in enumerate(now) if count == before[index]]
            if waiting:
                return f"nothing acknowledged of producers {waiting}"
            return "" if self._topics.rounds > topics else "no topic created and deleted"

        await self._until(stuck, "every producer and the topic user go on", 5.0)

    async def _read_back(self) -> None:
        client = self._client()
        for producer in self._producers:
            found = await read_partition(client, producer.history.topic, producer.history.partition)
            check_history(producer.history, found)
        await self._until(self._all_quiet, "followers hear what is committed", 5.0)
        for topic in self._topics_written():
            self.invariants.check_at_rest(topic.id)
        self._topics.check(self.invariants.metadata)
        if self.invariants.first is not None:
            raise self.invariants.first

    async def _until(self, condition: Callable[[], str], what: str, limit_s: float) -> None:
        """``condition`` answers what is missing, or nothing. Virtual seconds."""
        deadline_s = self._loop.time() + limit_s
        while missing := condition():
            self._check_nodes()
            if self._loop.time() > deadline_s:
                raise InvariantViolation(
                    "when faults end, the cluster heals", f"{what}: not after {limit_s} s: {missing}"
                )
            await asyncio.sleep(POLL_S)

    def _check_nodes(self) -> None:
        for failure in self._loop.unhandled:
            raise InvariantViolation(
                "nothing fails unseen", f"{failure['node']}: {failure['message']}: {failure.get('exception')!r}"
            )

    def _all_ready(self) -> str:
        servers = {number: self._cluster.running(number) for number in self._cluster.nodes}
        waiting = [number for number, server in servers.items() if server is None or not server.ready.is_set()]
        return f"nodes {waiting}" if waiting else ""

    def _all_sound(self) -> str:
        for number in self._cluster.nodes:
            server = self._cluster.running(number)
            assert server is not None
            assert server.broker is not None
            for (topic, index), log in server.broker.storage.manager.logs.items():
                if not is_sound(log):
                    return f"{topic}-{index} on {number} is damaged"
        return ""

    def _all_in_sync(self) -> str:
        image = self.invariants.metadata
        fenced = [broker.id for broker in image.brokers.values() if broker.fenced]
        if fenced:
            return f"brokers {fenced} are fenced"
        for topic in image.topics_by_id.values():
            for index, view in topic.partitions.items():
                if len(view.isr) < len(view.replicas) or view.leader < 0:
                    return f"{topic.name}-{index}: leader {view.leader}, in sync {view.isr} of {view.replicas}"
        behind = [number for number in self._cluster.nodes if self._offset(number) < image.offset]
        return f"nodes {behind} have old metadata" if behind else ""

    def _offset(self, number: int) -> int:
        server = self._cluster.running(number)
        return server.broker.context.image.offset if server is not None and server.broker is not None else -1

    def _all_quiet(self) -> str:
        for number in self._cluster.nodes:
            server = self._cluster.running(number)
            assert server is not None
            assert server.broker is not None
            for topic in self._topics_written():
                for index, view in topic.partitions.items():
                    if number not in view.replicas:
                        continue
                    log = server.broker.replicas.partitions[topic.id, index].log
                    if log.high_watermark != self.invariants.committed_end(topic.id, index):
                        return f"{topic.name}-{index} on {number} is at {log.high_watermark}"
        return ""

    def _topics_written(self) -> list[TopicView]:
        return [self.invariants.metadata.topics_by_name[name] for name in (TOPIC, COMPACTED, FORGETFUL)]


@contextmanager
def _errors_noticed(run: _Run) -> Iterator[None]:
    """An error that the program logged with its traceback is a bug, though it went on."""
    handler, logger = _ErrorHandler(run.invariants), logging.getLogger("ottla")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR if level == logging.NOTSET else level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _ErrorHandler(logging.Handler):
    def __init__(self, invariants: Invariants) -> None:
        super().__init__(logging.ERROR)
        self._invariants = invariants

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            error = record.exc_info[1]
            self._invariants.violated("nothing fails unseen", f"{record.getMessage()}: {error!r}")
