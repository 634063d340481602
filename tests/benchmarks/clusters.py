"""Clusters of combined nodes on this machine whose nodes can be killed and started again: Ottla's and Apache Kafka's."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ottla.testing.processes import ProcessCluster, free_port_block, wait_for

ROOT = Path(__file__).resolve().parents[2]
KAFKA = ROOT / "tests" / "peers" / "kafka" / "kafka"
KINDS = ("ottla", "kafka")
TICKS = os.sysconf("SC_CLK_TCK")


class Cluster(Protocol):
    """Nodes are numbered from 1."""

    def address(self, node: int) -> tuple[str, int]: ...

    def pid(self, node: int) -> int: ...

    def is_alive(self, node: int) -> bool: ...

    def start(self, node: int) -> None:
        """Starts a node that ended and waits until its client port answers."""
        ...


class OttlaCluster:
    """As `ottla up` runs it, with its default settings."""

    def __init__(self, processes: ProcessCluster) -> None:
        self._processes = processes

    def address(self, node: int) -> tuple[str, int]:
        return "localhost", self._processes.node(node).port

    def pid(self, node: int) -> int:
        pid = self._processes.node(node).pid()
        assert pid is not None
        return pid

    def is_alive(self, node: int) -> bool:
        return self._processes.node(node).alive_pid() is not None

    def start(self, node: int) -> None:
        started = self._processes.node(node)
        started.start()
        wait_for(started.ready_file.exists, f"node {node} to be ready", timeout_s=300)


class KafkaCluster:
    """As tests/peers/kafka/kafka runs it."""

    def __init__(self, home: Path, port: int) -> None:
        self._home = home
        self._port = port

    def address(self, node: int) -> tuple[str, int]:
        return "127.0.0.1", self._port + node - 1

    def pid(self, node: int) -> int:
        return int((self._home / f"pid{node}").read_text())

    def is_alive(self, node: int) -> bool:
        status = Path(f"/proc/{self.pid(node)}/status")
        return status.exists() and "\nState:\tZ" not in status.read_text()

    def start(self, node: int) -> None:
        subprocess.run([KAFKA, "start", self._home, str(node)], check=True)
        wait_for(lambda: _answers(self.address(node)), f"Apache Kafka's node {node}", timeout_s=300)


@contextmanager
def running(kind: str, nodes: int, settings: dict[str, str] | None = None) -> Iterator[Cluster]:
    """A fresh cluster of one of the `KINDS`; stopped, and its data removed, at the end. ``settings``: into every
    server.properties."""
    if kind == "ottla":
        with ProcessCluster(nodes, settings=settings) as processes:
            yield OttlaCluster(processes)
        return
    home, port = Path(tempfile.mkdtemp(prefix="bench-kafka-")), free_port_block(nodes)
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as more:
        more.write("".join(f"{name}={value}\n" for name, value in (settings or {}).items()))
        more.flush()
        subprocess.run([KAFKA, "up", home, str(nodes), str(port), more.name], check=True, stdout=subprocess.DEVNULL)
    cluster = KafkaCluster(home, port)
    try:
        yield cluster
    finally:
        for node in range(1, nodes + 1):
            if cluster.is_alive(node):
                os.kill(cluster.pid(node), signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 1).close()
    except OSError:
        return False
    return True


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of processes."""
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS
