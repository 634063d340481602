"""A cluster of real processes for tests that kill them."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli.client import Client
from ottla.cli.failures import CommandError
from ottla.cli.formatting import format_directories
from ottla.cli.initial_controllers import InitialControllers
from ottla.cli.local_cluster import LocalCluster, Shape
from ottla.cli.local_node import CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET, LocalNode
from ottla.testing import ports
from ottla.testing.last_words import last_words, listen_to
from ottla.testing.lifetime import Lifetime

PATIENCE_S = 120.0
"""For a start. Beside a load of a hundred the interpreter alone took half a minute to begin."""


class ProcessCluster(Lifetime):
    """``with ProcessCluster(nodes=3) as cluster``: `ottla up`'s processes on free ports, in a directory of their own."""

    def __init__(
        self,
        nodes: int = 3,
        home: Path | None = None,
        settings: dict[str, str] | None = None,
        shape: Shape | None = None,
    ) -> None:
        """``settings`` are added to every node's server.properties. ``shape``: which nodes are brokers or controllers only; without,
        all ``nodes`` are both."""
        self._own_home = home is None
        self.home = home or Path(tempfile.mkdtemp(prefix="ottla-test-"))
        shape = shape or Shape(both=nodes)
        self._cluster = LocalCluster.prepare(self.home, shape, free_port_block(sum(shape)), settings or {})
        listen_to(self._cluster)

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def nodes(self) -> list[LocalNode]:
        return self._cluster.nodes

    def node(self, node_id: int) -> LocalNode:
        return self._cluster.nodes[node_id - 1]

    def _begin(self) -> None:
        self._cluster.start()
        self._cluster.wait_ready(PATIENCE_S)

    def kill(self, node_id: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends the signal (kill -9 unless given) and, when it ends the process, waits until it is gone."""
        node = self.node(node_id)
        pid = node.alive_pid()
        assert pid is not None, f"node {node_id} does not run"
        os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            wait_for(lambda: node.alive_pid() is None, f"node {node_id} to end")

    def start(self, node_id: int) -> None:
        """Starts a node that was killed and waits until it takes requests."""
        node = self.node(node_id)
        node.start()
        wait_for(node.ready_file.exists, f"node {node_id} to be ready", PATIENCE_S)

    def directory(self, node_id: int, topic: str, partition: int = 0) -> Path:
        """Where a node has a replica. Named, not searched for: what a search walks through may vanish under it."""
        return self.node(node_id).home / "data" / f"{topic}-{partition}"

    def wait_for_topic(self, topic: str, partitions: int = 1) -> None:
        """Until each node that runs knows the topic with that many partitions and a leader for each: they learn of a change
        a moment after the client was told that it is made, and a client may ask any of them."""
        for node in self.nodes:
            if node.alive_pid() is not None:
                wait_for(lambda node=node: _knows(node, topic, partitions), f"node {node.node_id} to know {topic}")  # type: ignore[misc]  # bound now

    def add_node(self, settings: dict[str, str] | None = None) -> LocalNode:
        """One more node, which follows the quorum without a vote; returns when it takes requests."""
        node = LocalNode(self.home, len(self.nodes) + 1, free_port_block(1))
        controllers = ",".join(f"localhost:{each.controller_port}" for each in self.nodes)
        quorum = {"controller.quorum.bootstrap.servers": controllers}
        node.write_properties(node.texts(quorum, min(len(self.nodes), 3)) | (settings or {}))
        self.format(node, InitialControllers(none=True))
        self.nodes.append(node)
        self.start(node.node_id)
        return node

    def format(self, node: LocalNode, controllers: InitialControllers | None = None) -> None:
        """For this cluster."""
        format_directories(node.properties, self._cluster.cluster_id, ignore_formatted=False, controllers=controllers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What the nodes have to say of a failure would go with their directory."""
        if error is not None:
            sys.stderr.write(last_words(self._cluster) + "\n")
        super().__exit__(kind, error, trace)

    def close(self) -> None:
        left = self._cluster.stop(timeout_s=60)
        for node in left:
            pid = node.alive_pid()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        if self._own_home:
            shutil.rmtree(self.home, ignore_errors=True)


def _knows(node: LocalNode, topic: str, partitions: int) -> bool:
    asked = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    try:
        with Client(f"localhost:{node.port}") as client:
            [found] = client.call(asked, MetadataResponse).topics
    except CommandError:
        return False
    return len(found.partitions) == partitions and all(each.leader_id >= 0 for each in found.partitions)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> float:
    """Seconds until ``condition()`` held, asked every 5 ms. Raises TimeoutError that says what did not come."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(0.005)
    return time.monotonic() - began


def free_port_block(count: int) -> int:
    """A port P such that P..P+count-1, their controllers' and their metrics' ports are free now."""
    return ports.free_port_block(count, (0, CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET))
