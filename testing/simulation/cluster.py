"""A cluster of production servers on simulated machines: formatted disks, one process a node, restarts on what is left."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.broker.server import Server
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.rpc.stream_transport import StreamTransport
from ottla.runtime.host import Host
from ottla.runtime.identifiers import id_to_text, random_id
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.simulation.process import Process
from ottla.testing.simulation.cleaning import SimulatedWorker

CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
DATA = "/data"

# Shorter than in production, so that a run of seconds sees sessions end and replicas fall behind.
SETTINGS = {
    "broker.heartbeat.interval.ms": "400",
    "broker.session.timeout.ms": "1600",
    "replica.lag.time.max.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "group.min.session.timeout.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.request.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "400",
    "log.retention.check.interval.ms": "700",
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.max.retention.bytes": "1",  # one snapshot, and the log since the one before it
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}


class _Life(NamedTuple):
    """From a start of a node to its end. ``ended``: it was told to stop, or failed."""

    process: Process
    server: Server
    ended: asyncio.Future[None]


class SimulatedCluster:
    """Nodes ``node-1`` to ``node-N``, each controller and broker, and then plain brokers. `start` switches them on; faults may
    then hit them."""

    def __init__(
        self,
        loop: SimulationLoop,
        nodes: int = 3,
        settings: Mapping[str, str] | None = None,
        directories: Sequence[str] = (DATA,),
        plain_brokers: int = 0,
        joining: int = 0,
        settings_of: Callable[[int], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """``settings``: Kafka's names, for every node, on top of `SETTINGS`; ``settings_of``: for one, on top of these. The first directory has the metadata log too.
        ``joining``: so many of ``nodes``, the last, are controllers that do not vote yet, and find the quorum by bootstrap
        servers."""
        self.loop = loop
        self.directories = directories
        self.nodes: dict[int, SimulatedNode] = {
            number: loop.create_node(f"node-{number}") for number in range(1, nodes + plain_brokers + 1)
        }
        self._numbers = {node: number for number, node in self.nodes.items()}
        self.voters = tuple(self.nodes)[: nodes - joining]
        self.joining = tuple(self.nodes)[nodes - joining : nodes]
        self._latest: dict[int, _Life] = {}
        self.lives: dict[int, int] = dict.fromkeys(self.nodes, 0)
        self._configs = {
            number: self._config(number, {**SETTINGS, **(settings or {}), **settings_of(number)})
            for number in self.nodes
        }
        rng = loop.rng("format")
        cluster_id = id_to_text(random_id(rng))
        for number, node in self.nodes.items():
            disk = SimulatedDisk(node.platter)
            for directory in directories:
                disk.make_directories(directory)
                disk.sync_directory("/")
                MetaProperties(cluster_id, number, random_id(rng)).write(disk, directory)

    def _config(self, number: int, settings: Mapping[str, str]) -> ServerConfig:
        host = self.nodes[number].name
        controllers = {each: f"{self.nodes[each].name}:{CONTROLLER_PORT}" for each in self.voters}
        quorum = {"controller.quorum.voters": ",".join(f"{each}@{place}" for each, place in controllers.items())}
        if number in self.joining:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(controllers.values())}
        listeners = f"PLAINTEXT://{host}:{CLIENT_PORT}"
        is_controller = number in (*self.voters, *self.joining)
        texts = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(number),
            "listeners": f"{listeners},CONTROLLER://{host}:{CONTROLLER_PORT}" if is_controller else listeners,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(self.directories),
        }
        return ServerConfig({**settings, **texts, **quorum}, host)

    @property
    def brokers(self) -> list[tuple[str, int]]:
        """Where clients find the brokers."""
        return [(node.name, CLIENT_PORT) for node in self.nodes.values()]

    def start(self) -> None:
        """Starts every node's program. They come up by themselves, in virtual time."""
        for number, node in self.nodes.items():
            node.start(lambda host, number=number: self._main(number, host))  # type: ignore[misc]  # bound now

    async def _main(self, number: int, host: Host) -> None:
        """A node's program: the server until it fails. A restart runs it again on what the disk holds."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lives[number] += 1

        def fail(error: Exception) -> None:
            if not failed.done():
                failed.set_exception(error)

        start_cleaner = partial(SimulatedWorker, host.disk)
        server = Server(self._configs[number], host, StreamTransport(), fail, start_cleaner)
        self._latest[number] = _Life(self.loop.current_process, server, failed)
        await server.start()
        await failed
        await server.stop()

    def stop(self, node: SimulatedNode) -> bool:
        """As SIGTERM: once its server is up, the node hands over and ends. False when nothing runs there."""
        life = self._life(self.number_of(node))
        if life is None or life.ended.done():
            return False
        life.process.run(life.ended.set_result, None)
        return True

    def is_stopping(self, number: int) -> bool:
        """Whether it was told to hand over and end, or failed: it may be killed half-way through."""
        life = self._life(number)
        return life is not None and life.ended.done()

    def running(self, number: int) -> Server | None:
        """The server of a node whose process lives (perhaps paused, perhaps still starting)."""
        life = self._life(number)
        return life.server if life is not None else None

    def _life(self, number: int) -> "_Life | None":
        """Not the one before, in the moment in which the node was started again and no line of its program has run."""
        life = self._latest.get(number)
        return life if life is not None and life.process is self.nodes[number].process else None

    def number_of(self, node: SimulatedNode) -> int:
        """The broker id of a machine."""
        return self._numbers[node]
