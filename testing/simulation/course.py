"""The course of a run, in virtual time: a cluster, its weather, users; then it heals, and everything is read back.

What every run has is here. Whatever only some have is a dimension (dimension.py), which uses the public part of `Run`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.replication.partition import Partition
from ottla.quorum.metadata.views import TopicView
from ottla.runtime.simulation.faults import Fault, last_end_ms
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.client import Client
from ottla.testing.simulation.cluster import DATA, SimulatedCluster
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.invariants import Invariants
from ottla.testing.simulation.length import USUAL, Length
from ottla.testing.simulation.metadata_at_rest import odd_images
from ottla.testing.simulation.plan import Faults
from ottla.testing.simulation.roles import resolve
from ottla.testing.simulation.soundness import is_sound
from ottla.testing.simulation.violations import InvariantViolation
from ottla.testing.simulation.workload import (
    History,
    SimulatedProducer,
    check_history,
    create_topic,
    read_partition,
)

NODES = 3
TOPIC, PARTITIONS = "flights", USUAL.partitions
HEAL_S = 20.0
GO_ON_S = 5.0
POLL_S = 0.02


class Run:
    """One run. ``acknowledged`` records so far; ``lost`` of them, as elections were allowed to; ``healed_s`` is how long the cluster took
    to heal."""

    def __init__(
        self, loop: SimulationLoop, faults: Sequence[Fault], dimensions: Sequence[Dimension], length: Length = USUAL
    ) -> None:
        self.loop = loop
        self.acknowledged = self.lost = 0
        self.healed_s = 0.0
        self.producers: list[SimulatedProducer] = []
        self.found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """(number, offset) of all records of the producers' partitions, once they are read back."""
        self._faults = faults
        self._dimensions = dimensions
        self._length = length
        self.cluster = SimulatedCluster(
            loop,
            NODES,
            settings={
                **length.settings,
                **{name: value for each in dimensions for name, value in each.settings.items()},
            },
            directories=(DATA, *dict.fromkeys(path for each in dimensions for path in each.directories)),
            plain_brokers=sum(each.plain_brokers for each in dimensions),
            settings_of=lambda number: {
                name: value for each in dimensions for name, value in each.settings_of(number).items()
            },
        )
        self.invariants = Invariants(self.cluster)
        self._topics: dict[str, None] = {}
        self._clients: list[Client] = []
        self._users: list[asyncio.Task[None]] = []
        for each in dimensions:
            each.run = self

    # --- for dimensions

    @property
    def servers(self) -> Mapping[int, Broker]:
        """The brokers that run now, by number."""
        found = {number: self.cluster.running(number) for number in self.cluster.nodes}
        return {number: each.broker for number, each in found.items() if each is not None and each.broker is not None}

    def partition(self, number: int, topic: str, index: int) -> Partition | None:
        """A replica as the running broker ``number`` has it."""
        view, server = self.invariants.metadata.topics_by_name.get(topic), self.servers.get(number)
        return server.replicas.partitions.get((view.id, index)) if view is not None and server is not None else None

    def client(self) -> Client:
        """One of its own for every user: it has one request in flight."""
        client = Client(self.cluster.brokers)
        self._clients.append(client)
        return client

    async def create_topic(self, name: str, partitions: int, **settings: str) -> None:
        """A topic that lives as long as the run: at rest its replicas, three, are compared. ``settings`` with "_" for "."."""
        await create_topic(self.client(), name, partitions, 3, **settings)
        self.keep(name)

    def keep(self, name: str) -> None:
        """A topic, however it was made, that lives as long as the run."""
        self._topics[name] = None

    def produce(self, history: History, interval_s: float, batch: int = 1) -> SimulatedProducer:
        """Another producer, begun when all dimensions are prepared: what it is told is checked, and read back at the end."""
        return self.add_producer(SimulatedProducer(self.client(), history, interval_s, batch))

    def add_producer(self, producer: SimulatedProducer) -> SimulatedProducer:
        """As `produce`, one that was made elsewhere."""
        producer.on_acknowledged = self.note_acknowledged
        self.producers.append(producer)
        return producer

    def note_acknowledged(self, topic: str, index: int, offset: int) -> None:
        """A user of `flights` or of any topic was told that its record stands at that offset."""
        self.acknowledged += 1
        self.invariants.acknowledged(topic, index, offset)

    async def until(self, condition: Callable[[], str], what: str, limit_s: float) -> None:
        """``condition`` answers what is missing, or nothing. Virtual seconds."""
        deadline_s = self.loop.time() + limit_s
        while missing := condition():
            self._check_nodes()
            if self.loop.time() > deadline_s:
                raise InvariantViolation(
                    "when faults end, the cluster heals", f"{what}: not after {limit_s} s: {missing}"
                )
            await asyncio.sleep(POLL_S)

    def counts(self) -> dict[str, int]:
        """What the run came to."""
        counts = {"records acknowledged": self.acknowledged, **self.invariants.storage.counts()}
        for each in self._dimensions:
            counts.update(each.counts())
        return counts

    # --- the course

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
            await self._close()

    def dismiss(self) -> None:
        """The users go home."""
        for user in self._users:
            user.cancel()

    async def _close(self) -> None:
        """Nothing of the users' stays open."""
        self.dismiss()
        await asyncio.gather(*self._users, return_exceptions=True)
        for client in self._clients:
            client.close()

    async def _drive(self) -> None:
        self.cluster.start()
        await self.until(self._all_ready, "the cluster starts", 5.0)
        await self._prepare()
        for producer in self.producers:
            self.employ(producer.run())
        for dimension in self._dimensions:
            for user in dimension.users():
                self.employ(user)
        await self._weather()
        await self._heal()
        await self._everyone_goes_on()
        self.dismiss()
        await self._read_back()

    async def _prepare(self) -> None:
        if self._length.partitions:
            await self._make_flights()
        for dimension in self._dimensions:
            await dimension.prepare()

    async def _make_flights(self) -> None:
        settings = dict(self._length.topics)
        for dimension in self._dimensions:
            settings.update(dimension.topic_settings)
        await self.create_topic(TOPIC, self._length.partitions, **settings)
        for index in range(self._length.partitions):
            self.produce(History(TOPIC, index), self._length.producing_s * (index + 1))

    def employ(self, work: Coroutine[Any, Any, None]) -> None:
        """Somebody acts until all is read back, or in an epilogue until `dismiss`. Whatever it raises ends the run."""
        user = asyncio.ensure_future(work)
        user.add_done_callback(self._user_ended)
        self._users.append(user)

    def _user_ended(self, user: "asyncio.Task[None]") -> None:
        if user.cancelled() or (error := user.exception()) is None:
            return
        if isinstance(error, InvariantViolation):
            self.invariants.violated(error.invariant, error.story)
        else:
            self.invariants.violated("users get answers a correct cluster gives", str(error) or repr(error))

    async def _weather(self) -> None:
        kinds = {name: kind for each in self._dimensions for name, kind in each.kinds().items()}
        invariants = self.invariants
        faults = Faults(
            self.cluster,
            lambda: invariants.metadata,
            invariants.metadata_wiped,
            kinds,
            partial(resolve, invariants=invariants),
        )
        self.invariants.on_metadata.append(faults.metadata_changed)
        faults.schedule(self._faults)
        least_ms = self._length.least_ms(max((each.least_ms for each in self._dimensions), default=0))
        await asyncio.sleep(max(last_end_ms(self._faults), least_ms) / 1000 + 0.001)

    async def _heal(self) -> None:
        """When faults end, a user must not have to restart anything by hand."""
        began_s = self.loop.time()
        await self.until(self._all_ready, "every node takes requests again", HEAL_S)
        await self.until(self.all_in_sync, "every replica is in sync again", HEAL_S)
        for dimension in self._dimensions:
            await self.until(dimension.missing, f"what {dimension.name} broke is whole again", dimension.heal_s)
        await self.until(self.all_in_sync, "every replica is in sync again", HEAL_S)
        self.healed_s = self.loop.time() - began_s

    async def _everyone_goes_on(self) -> None:
        before = self._progress()

        def stuck() -> str:
            now = self._progress()
            waiting = [what for what, count in now.items() if count <= before.get(what, -1)]
            return f"no more {', '.join(waiting)}" if waiting else ""

        await self.until(stuck, "every user goes on", GO_ON_S)

    def _progress(self) -> dict[str, int]:
        progress = {
            f"acknowledged of {each.history.topic}-{each.history.partition} for producer {number}": len(
                each.history.acknowledged
            )
            for number, each in enumerate(self.producers)
        }
        for dimension in self._dimensions:
            progress.update(dimension.progress())
        return progress

    async def _read_back(self) -> None:
        client = self.client()
        for producer in self.producers:
            place = (producer.history.topic, producer.history.partition)
            if place not in self.found:
                self.found[place] = await read_partition(client, *place)
            self.lost += check_history(producer.history, self.found[place], self.invariants.committed(*place).may_lack)
        await self.until(self._all_hosted, "every broker has what the metadata says", 5.0)
        # Last: until then somebody may have written still, as a coordinator that ends what took too long.
        await self.until(self._all_quiet, "followers hear what is committed", 5.0)
        self._check_sound()
        for topic in self._topics_kept():
            self.invariants.check_at_rest(topic.id)
        self._check_images()
        for dimension in self._dimensions:
            await dimension.check()
        for dimension in self._dimensions:
            await dimension.epilogue()
        if self.invariants.first is not None:
            raise self.invariants.first

    def _check_sound(self) -> None:
        """Whatever a power cut tears is cut off at the start, so that nobody is given it, or finds it much later."""
        for number, broker in self.servers.items():
            for (topic, index), log in broker.storage.manager.logs.items():
                if topic in self._topics and not is_sound(log):
                    raise InvariantViolation("logs are whole at rest", f"{topic}-{index} on {number} is damaged")

    def _check_images(self) -> None:
        """What a node acts on must be what the log says, or it sends clients where nothing is."""
        for odd in odd_images(self.cluster):
            self.invariants.violated("an image is what the log says", odd)

    # --- what is missing still

    def _check_nodes(self) -> None:
        for failure in self.loop.unhandled:
            raise InvariantViolation(
                "nothing fails unseen", f"{failure['node']}: {failure['message']}: {failure.get('exception')!r}"
            )

    def _all_ready(self) -> str:
        servers = {number: self.cluster.running(number) for number in self.cluster.nodes}
        waiting = [number for number, server in servers.items() if server is None or not server.ready.is_set()]
        return f"nodes {waiting}" if waiting else ""

    def all_in_sync(self) -> str:
        """What is missing to that."""
        image = self.invariants.metadata
        fenced = [broker.id for broker in image.brokers.values() if broker.fenced]
        if fenced:
            return f"brokers {fenced} are fenced"
        for topic in image.topics_by_id.values():
            for index, view in topic.partitions.items():
                if len(view.isr) < len(view.replicas) or view.leader < 0:
                    return f"{topic.name}-{index}: leader {view.leader}, in sync {view.isr} of {view.replicas}"
        servers = self.servers
        behind = [
            number
            for number in self.cluster.nodes
            if number not in servers or servers[number].context.image.offset < image.offset
        ]
        return f"nodes {behind} have old metadata" if behind else ""

    def _all_quiet(self) -> str:
        for topic in self._topics_kept():
            for index, view in topic.partitions.items():
                for number in view.replicas:
                    log = self.servers[number].replicas.partitions[topic.id, index].log
                    if not log.high_watermark == log.log_end_offset == self.invariants.committed_end(topic.id, index):
                        return f"{topic.name}-{index} on {number} is at {log.high_watermark} of {log.log_end_offset}"
        return ""

    def _all_hosted(self) -> str:
        """Nothing is missing, and nothing is left of what is gone."""
        image = self.invariants.metadata
        for number, broker in self.servers.items():
            due = {
                (topic.name, index): topic.id
                for topic in image.topics_by_id.values()
                for index, view in topic.partitions.items()
                if number in view.replicas
            }
            hosted = {
                (each.topic, each.index): each.topic_id
                for key, each in broker.replicas.partitions.items()
                if key[0] == each.topic
            }
            logs = {(each.topic, each.partition): log.topic_id for each, log in broker.storage.manager.logs.items()}
            for what, found in (("hosts", hosted), ("has logs of", logs)):
                if found != due:
                    return f"broker {number} {what} {_names(found)} instead of {_names(due)}"
        return ""

    def _topics_kept(self) -> list[TopicView]:
        return [self.invariants.metadata.topics_by_name[name] for name in self._topics]


def _names(partitions: Mapping[tuple[str, int], bytes | None]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
