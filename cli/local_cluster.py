"""The processes of a cluster on this machine: their directories, configuration, start and stop."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ottla.cli.failures import CommandError
from ottla.cli.storage import format_directories, new_cluster_id
from ottla.runtime.settings.properties import parse_properties
from ottla.runtime.settings.server import METRICS_LISTENER

CONTROLLER_PORT_OFFSET = 1000
METRICS_PORT_OFFSET = 2000
START_TIMEOUT_S = 30.0
POLL_S = 0.005


class LocalNode:
    """One node's directory and process."""

    def __init__(self, home: Path, node_id: int, port: int) -> None:
        self.home = home / f"node-{node_id}"
        self.node_id = node_id
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> Path:
        return self.home / "server.properties"

    @property
    def log_file(self) -> Path:
        return self.home / "server.log"

    @property
    def pid_file(self) -> Path:
        return self.home / "pid"

    @property
    def ready_file(self) -> Path:
        return self.home / "ready"

    @property
    def controller_port(self) -> int:
        return self.port + CONTROLLER_PORT_OFFSET

    @property
    def metrics_port(self) -> int:
        return self.port + METRICS_PORT_OFFSET

    @property
    def metrics_listener(self) -> str:
        """As its server.properties has it, which may be a person's; empty if it has none."""
        texts = parse_properties(self.properties.read_text(encoding="utf-8"), str(self.properties))
        return texts.get(METRICS_LISTENER, "")

    def write_properties(self, quorum: str, replicas: int) -> None:
        """Writes server.properties unless the person has one there already: theirs is kept. ``quorum``: the setting that
        tells the node of the others."""
        self.home.mkdir(parents=True, exist_ok=True)
        if self.properties.exists():
            return
        home = self.home.resolve()
        self.properties.write_text(
            f"""# Written by `ottla up`; yours to change.
process.roles=broker,controller
node.id={self.node_id}
listeners=PLAINTEXT://localhost:{self.port},CONTROLLER://localhost:{self.controller_port}
advertised.listeners=PLAINTEXT://localhost:{self.port}
controller.listener.names=CONTROLLER
{quorum}
log.dirs={home / "data"}
default.replication.factor={replicas}
min.insync.replicas={2 if replicas > 2 else 1}
ottla.metrics.listener=localhost:{self.metrics_port}
ottla.pid.file={home / "pid"}
ottla.ready.file={home / "ready"}
ottla.log.file={home / "server.log"}
""",
            encoding="utf-8",
        )

    def start(self) -> None:
        self.ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ottla.cli.main", "server", "start", "--config", str(self.properties)]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def pid(self) -> int | None:
        """The process that runs (or last ran) on this directory, whoever started it."""
        if self.process and self.process.poll() is None:
            return self.process.pid  # also while it starts, when the file may still be of the one before
        try:
            return int(self.pid_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return self.process.pid if self.process else None

    def alive_pid(self) -> int | None:
        self.reap()
        pid = self.pid()
        return pid if pid is not None and _is_running(pid) else None

    def has_exited(self) -> bool:
        """Whether the child we started (if we did) was collected."""
        return self.process is None or self.process.poll() is not None

    def reap(self) -> None:
        """Collects our own child if it has ended, so that a dead one does not look alive."""
        if self.process:
            self.process.poll()

    def how_it_ended(self) -> str:
        code = self.process.returncode if self.process else None
        if code is None or code == 0:
            return "ended"  # it was asked to, or is not this process's child
        return f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def last_log_line(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
            return lines[-1] if lines else ""
        return ""


class LocalCluster:
    """Nodes 1..N under one home directory."""

    def __init__(self, home: Path, nodes: list[LocalNode], cluster_id: str) -> None:
        self.home = home
        self.nodes = nodes
        self.cluster_id = cluster_id

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{node.port}" for node in self.nodes)

    @property
    def metrics_listeners(self) -> list[str]:
        return [node.metrics_listener for node in self.nodes if node.metrics_listener]

    @classmethod
    def prepare(cls, home: Path, count: int, port: int) -> "LocalCluster":
        """Directories, configuration and format of every node. Raises CommandError where a start cannot work."""
        nodes = [LocalNode(home, number, port + number - 1) for number in range(1, count + 1)]
        _refuse_another_shape(home, nodes)
        for node in nodes:
            if node.alive_pid() is not None:
                raise CommandError(
                    f"{home} is in use: node {node.node_id} runs as pid {node.pid()}; stop it, or give another --dir"
                )
            for taken in (node.port, node.controller_port, node.metrics_port):
                _refuse_taken_port(taken)
        voters = ",".join(f"{node.node_id}@localhost:{node.controller_port}" for node in nodes)
        cluster_id = _cluster_id(home)
        for node in nodes:
            node.write_properties(f"controller.quorum.voters={voters}", min(count, 3))
            format_directories(node.properties, cluster_id, ignore_formatted=True)
        return cls(home, nodes, cluster_id)

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def wait_ready(self) -> None:
        """Returns when every node takes requests. Raises CommandError as soon as one has ended."""
        deadline = time.monotonic() + START_TIMEOUT_S
        waiting = list(self.nodes)
        while waiting:
            for node in list(waiting):
                if node.ready_file.exists():
                    waiting.remove(node)
                elif node.process and node.process.poll() is not None:
                    raise CommandError(f"node {node.node_id} did not start: {node.last_log_line()}")
            if time.monotonic() > deadline:
                raise CommandError(
                    f"node {waiting[0].node_id} was not ready after {START_TIMEOUT_S:.0f} s; see {waiting[0].log_file}"
                )
            time.sleep(POLL_S)

    def stop(self, timeout_s: float) -> list[LocalNode]:
        """Asks every node to stop (SIGTERM) and waits; returns those that still run."""
        for node in self.nodes:
            pid = node.alive_pid()
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        left = self.nodes
        while left and time.monotonic() < deadline:
            left = [node for node in left if node.alive_pid() is not None or not node.has_exited()]
            time.sleep(POLL_S)
        return left


def _refuse_another_shape(home: Path, nodes: list[LocalNode]) -> None:
    """A directory of another number of nodes has voters of its own: it cannot simply be started as this one."""
    there = sorted(each.name for each in home.glob("node-*")) if home.exists() else []
    wanted = [node.home.name for node in nodes]
    if there and there != wanted:
        raise CommandError(
            f"{home} holds {len(there)} nodes, not {len(wanted)}: use --nodes {len(there)}, or another --dir"
        )
    for node in nodes:
        if node.properties.exists() and f"localhost:{node.port}" not in node.properties.read_text(encoding="utf-8"):
            raise CommandError(
                f"{node.properties} does not listen on port {node.port}: use the --port it was made with, or another --dir"
            )


def _refuse_taken_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("localhost", port))
        except OSError:
            raise CommandError(f"port {port} is taken: end what listens there, or give another --port") from None


def _cluster_id(home: Path) -> str:
    path = home / "cluster.id"
    if not path.exists():
        try:
            home.mkdir(parents=True, exist_ok=True)
            path.write_text(new_cluster_id() + "\n", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"cannot write to {home}: {error.strerror}; give a --dir that can be written") from error
    return path.read_text(encoding="utf-8").strip()


def _is_running(pid: int) -> bool:
    """Whether the process is a node (``ottla server start``): a pid in a file left behind may be another program's by now."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"start" in command and stat.rpartition(")")[2].split()[0] != "Z"
