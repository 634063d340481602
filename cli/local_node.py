"""One node of a cluster on this machine: its directory, its server.properties, its process."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.properties import parse_properties, text_of
from ottla.runtime.settings.server import METRICS_LISTENER

CONTROLLER_PORT_OFFSET = 1000
METRICS_PORT_OFFSET = 2000
BOTH_ROLES = ("broker", "controller")


class LocalNode:
    """One node's directory and process."""

    def __init__(self, home: Path, node_id: int, port: int) -> None:
        self.home = home / f"node-{node_id}"
        self.node_id = node_id
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        """Variables that its process has besides ours."""

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

    def ports(self, roles: Sequence[str]) -> list[int]:
        """Those it listens on."""
        clients, controllers = [self.port] * ("broker" in roles), [self.controller_port] * ("controller" in roles)
        return [*clients, *controllers, self.metrics_port]

    @property
    def metrics_listener(self) -> str:
        """As its server.properties has it, which may be a person's; empty if it has none."""
        return self.has(METRICS_LISTENER) or ""

    def has(self, name: str) -> str | None:
        """A setting as its server.properties has it."""
        return parse_properties(text_of(self.properties), str(self.properties)).get(name)

    def texts(self, quorum: Mapping[str, str], replicas: int, roles: Sequence[str] = BOTH_ROLES) -> dict[str, str]:
        """Its settings. ``quorum``: the one that tells the node of the controllers; ``replicas``: of a new topic."""
        clients, controllers = f"PLAINTEXT://localhost:{self.port}", f"CONTROLLER://localhost:{self.controller_port}"
        home = self.home.resolve()
        texts = {
            "process.roles": ",".join(roles),
            "node.id": str(self.node_id),
            "listeners": ",".join([clients] * ("broker" in roles) + [controllers] * ("controller" in roles)),
            "controller.listener.names": "CONTROLLER",
            **quorum,
            "log.dirs": str(home / "data"),
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(2 if replicas > 2 else 1),
            # Members of a new group are waited for 3 s by default (Kafka's example has 0): here they start together, if at all.
            "group.initial.rebalance.delay.ms": "100",
            METRICS_LISTENER: f"localhost:{self.metrics_port}",
            "ottla.pid.file": str(home / "pid"),
            "ottla.ready.file": str(home / "ready"),
            "ottla.log.file": str(home / "server.log"),
        }
        return texts | ({"advertised.listeners": clients} if "broker" in roles else {})

    def write_properties(self, texts: Mapping[str, str]) -> None:
        """Writes server.properties unless the person has one there already: theirs is kept."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not self.properties.exists():
            self._write("# Written by `ottla up`; yours to change.\n" + lines_of(texts))

    def set(self, texts: Mapping[str, str]) -> None:
        """Adds to server.properties what it does not say already: of two lines with a name the last one counts."""
        before = text_of(self.properties)
        there = parse_properties(before, str(self.properties))
        new = {name: text for name, text in texts.items() if there.get(name) != text}
        if new:
            end = "" if before.endswith("\n") or not before else "\n"
            self._write(before + end + lines_of(new))

    def _write(self, text: str) -> None:
        """Whole or not at all: half of it would be taken for a person's. Read by nobody who could not read it before."""
        path = self.properties.resolve()
        mode = path.stat().st_mode & 0o777 if path.exists() else None
        umask = os.umask(0o777 & ~mode) if mode is not None else None
        try:
            RealDisk().write_atomically(str(path), text.encode())
        finally:
            if umask is not None:
                os.umask(umask)
        if mode is not None:
            path.chmod(mode)

    def start(self) -> None:
        """In a session of its own: it outlives whoever started it."""
        self.ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ottla.cli.main", "server", "start", "--config", str(self.properties)]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment},
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
        if not self.has_exited() and self.process:
            return self.process.pid  # in the moment of its exec it has no command line to be known by
        pid = self.pid()
        return pid if pid is not None and is_running(pid) else None

    def has_exited(self) -> bool:
        """Whether the child we started (if we did) has ended; it is collected then."""
        return self.process is None or self.process.poll() is not None

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


def lines_of(texts: Mapping[str, str]) -> str:
    """As server.properties has them."""
    return "".join(f"{name}={text}\n" for name, text in texts.items())


def is_running(pid: int) -> bool:
    """Whether the process is a node (``ottla server start``): a pid in a file left behind may be another program's by now."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"server" in command and b"start" in command and begun(pid) is not None


def begun(pid: int) -> int | None:
    """When the process began, in ticks since the boot, by which it is told from another that has its number later (proc(5)).

    None once it has ended, with all its threads. As it ends its command line goes first, then its files, locks and sockets.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    threads, start = int(fields[16]), int(fields[18])
    return None if state == "Z" and threads <= 1 else start
