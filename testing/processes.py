"""A cluster of real processes for tests that kill them."""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.cli.initial_controllers import InitialControllers
from ottla.cli.local_cluster import CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET, LocalCluster, LocalNode
from ottla.cli.storage import format_directories

_handed_out: dict[int, None] = {}  # by this process, perhaps not bound yet
FIRST_PORT = 20_000
LAST_PORT = 30_000  # with the offsets below the range that the kernel hands out to clients (32768..)


class ProcessCluster:
    """``with ProcessCluster(nodes=3) as cluster``: `ottla up`'s processes on free ports, in a directory of their own."""

    def __init__(self, nodes: int = 3, home: Path | None = None, settings: dict[str, str] | None = None) -> None:
        """``settings`` are added to every node's server.properties."""
        self._own_home = home is None
        self.home = home or Path(tempfile.mkdtemp(prefix="ottla-test-"))
        self._cluster = LocalCluster.prepare(self.home, nodes, free_port_block(nodes))
        for node in self._cluster.nodes:
            lines = "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
            node.properties.write_text(node.properties.read_text(encoding="utf-8") + lines, encoding="utf-8")

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap

    @property
    def nodes(self) -> list[LocalNode]:
        return self._cluster.nodes

    def node(self, node_id: int) -> LocalNode:
        return self._cluster.nodes[node_id - 1]

    def __enter__(self) -> Self:
        try:
            self._cluster.start()
            self._cluster.wait_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

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
        wait_for(node.ready_file.exists, f"node {node_id} to be ready")

    def add_node(self, settings: dict[str, str] | None = None) -> LocalNode:
        """One more node, which follows the quorum without a vote; returns when it takes requests."""
        node = LocalNode(self.home, len(self.nodes) + 1, free_port_block(1))
        controllers = ",".join(f"localhost:{each.controller_port}" for each in self.nodes)
        texts = {"controller.quorum.bootstrap.servers": controllers, **(settings or {})}
        node.write_properties("\n".join(f"{name}={value}" for name, value in texts.items()), min(len(self.nodes), 3))
        self.format(node, InitialControllers(none=True))
        self.nodes.append(node)
        self.start(node.node_id)
        return node

    def format(self, node: LocalNode, controllers: InitialControllers | None = None) -> None:
        """For this cluster."""
        format_directories(node.properties, self._cluster.cluster_id, ignore_formatted=False, controllers=controllers)

    def _end(self) -> None:
        left = self._cluster.stop(timeout_s=20)
        for node in left:
            pid = node.alive_pid()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        if self._own_home:
            shutil.rmtree(self.home, ignore_errors=True)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> float:
    """Seconds until ``condition()`` held, asked every 5 ms. Raises TimeoutError that says what did not come."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(0.005)
    return time.monotonic() - began


def free_port_block(count: int) -> int:
    """A port P such that P..P+count-1, their controllers' and their metrics' ports are free now."""
    start = FIRST_PORT + os.getpid() * 7 % (LAST_PORT - FIRST_PORT)
    for offset in range(0, LAST_PORT - FIRST_PORT, 10):
        base = FIRST_PORT + (start - FIRST_PORT + offset) % (LAST_PORT - FIRST_PORT)
        wanted = [
            base + at + extra for at in range(count) for extra in (0, CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET)
        ]
        if not any(port in _handed_out for port in wanted) and all(_is_free(port) for port in wanted):
            _handed_out.update(dict.fromkeys(wanted))
            return base
    raise OSError("no free block of ports on this machine")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("localhost", port))
        except OSError:
            return False
        return True
