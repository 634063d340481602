"""A whole cluster inside your test: N nodes on free ports, in a thread of their own, in well under a second.

    with Cluster(nodes=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

The production server in one event loop; only the transport of the quorum is the length-prefixed one of the simulation
rather than gRPC, and the data lies in a temporary directory that goes with the cluster.
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from random import SystemRandom
from typing import Any, NamedTuple, TypeVar

import uvloop

from ottla.broker.server import Server
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.rpc.stream_transport import StreamTransport
from ottla.runtime.host import Host
from ottla.runtime.identifiers import id_to_text, random_id
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.server import ServerConfig
from ottla.testing.lifetime import Lifetime
from ottla.testing.ports import free_ports

START_TIMEOUT_S = 30.0
HOST = "127.0.0.1"

Result = TypeVar("Result")


class Cluster(Lifetime):
    """Nodes 1..N. Entering starts them and returns when all take requests; leaving stops them and removes their data."""

    def __init__(self, nodes: int = 3, settings: Mapping[str, str] | None = None, *, log_directories: int = 1) -> None:
        """``settings``: Kafka's names, for every node. ``log_directories``: how many each has."""
        self._home = Path(tempfile.mkdtemp(prefix="ottla-cluster-"))
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-cluster", daemon=True)
        self._site = _Site(self._home, id_to_text(random_id(SystemRandom())), log_directories)
        self._configs = self._site.voters(nodes, settings or {})
        self._servers: dict[int, Server] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(config.client_listeners[0].endpoint) for config in self._configs.values())

    def log_directories(self, node_id: int) -> list[Path]:
        """A node's ``log.dirs``; the first has the metadata log too."""
        return [Path(path) for path in self._configs[node_id].log_dirs]

    def _begin(self) -> None:
        self._thread.start()
        self._run(self._start_all())

    def stop_node(self, node_id: int) -> None:
        """Stops a node gracefully."""
        self._run(self._servers.pop(node_id).stop())

    def start_node(self, node_id: int) -> None:
        """Starts a stopped node on its old data and waits until it takes requests."""
        self._run(self._start(node_id))

    def add_node(self, settings: Mapping[str, str] | None = None) -> int:
        """Starts one more broker and controller, and returns its id. It follows the quorum without a vote, unless
        ``settings`` has ``controller.quorum.auto.join.enable=true``: then it joins within seconds."""
        node_id = max(self._configs) + 1
        controllers = ",".join(str(config.controller_endpoint) for config in self._configs.values())
        texts = {"controller.quorum.bootstrap.servers": controllers, **(settings or {})}
        port, quorum_port = free_ports(2)
        self._configs[node_id] = self._site.configuration(node_id, port, quorum_port, texts)
        self.start_node(node_id)
        return node_id

    def close(self) -> None:
        """Stops what runs. Twice does nothing."""
        if not self._loop.is_closed():
            if self._thread.is_alive():
                self._run(self._stop_all())
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
            self._loop.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT_S)

    async def _start_all(self) -> None:
        await asyncio.gather(*(self._start(node_id) for node_id in self._configs))

    async def _start(self, node_id: int) -> None:
        server = Server(self._configs[node_id], Host.real(), StreamTransport())
        self._servers[node_id] = server
        await server.start()
        await server.ready.wait()

    async def _stop_all(self) -> None:
        servers, self._servers = list(self._servers.values()), {}
        await asyncio.gather(*(server.stop() for server in servers), return_exceptions=True)


class _Site(NamedTuple):
    """Where the nodes of one cluster have their directories."""

    home: Path
    cluster_id: str
    log_directories: int

    def voters(self, nodes: int, settings: Mapping[str, str]) -> dict[int, ServerConfig]:
        """A static quorum of all nodes."""
        ports = free_ports(2 * nodes)
        voters = ",".join(f"{node}@{HOST}:{ports[nodes + node - 1]}" for node in range(1, nodes + 1))
        texts = {
            "controller.quorum.voters": voters,
            "default.replication.factor": str(min(nodes, 3)),
            "min.insync.replicas": "2" if nodes > 2 else "1",
            **settings,
        }
        return {
            node: self.configuration(node, ports[node - 1], ports[nodes + node - 1], texts)
            for node in range(1, nodes + 1)
        }

    def configuration(self, node: int, port: int, quorum_port: int, settings: Mapping[str, str]) -> ServerConfig:
        """Of a node whose directories are formatted here."""
        numbers = range(1, self.log_directories + 1)
        paths = [str(self.home / f"node-{node}" / f"data-{number}") for number in numbers]
        disk = RealDisk()
        for path in paths:
            disk.make_directories(path)
            MetaProperties(self.cluster_id, node, random_id(SystemRandom())).write(disk, path)
        texts = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{quorum_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(paths),
        }
        return ServerConfig({**texts, **settings}, f"node {node}")
