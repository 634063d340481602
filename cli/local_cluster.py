"""The processes of a cluster on this machine: where they are, that they can start, their start and stop."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ottla.cli.failures import CommandError
from ottla.cli.formatting import format_directories, new_cluster_id
from ottla.cli.local_node import BOTH_ROLES, LocalNode, begun
from ottla.cli.up_words import stop_command
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.properties import parse_properties, text_of
from ottla.runtime.settings.server import ServerConfig

REPLICAS_MAX = 3
START_TIMEOUT_S = 30.0
POLL_S = 0.005


class Shape(NamedTuple):
    """How many nodes of which role. Brokers are numbered first, so that clients find one on the first port."""

    both: int = 0
    only_brokers: int = 0
    only_controllers: int = 0

    def nodes(self, home: Path, port: int) -> list[LocalNode]:
        return [LocalNode(home, number, port + number - 1) for number in range(1, sum(self) + 1)]

    def roles(self, node_id: int) -> tuple[str, ...]:
        if node_id <= self.both:
            return BOTH_ROLES
        return ("broker",) if node_id <= self.both + self.only_brokers else ("controller",)

    def brokers(self, nodes: Sequence[LocalNode]) -> list[LocalNode]:
        return [node for node in nodes if "broker" in self.roles(node.node_id)]

    def voters(self, nodes: Sequence[LocalNode]) -> str:
        """As controller.quorum.voters has them."""
        controllers = [node for node in nodes if "controller" in self.roles(node.node_id)]
        return ",".join(f"{node.node_id}@localhost:{node.controller_port}" for node in controllers)


class LocalCluster:
    """Nodes 1..N under one home directory."""

    def __init__(self, home: Path, nodes: list[LocalNode], shape: Shape, cluster_id: str) -> None:
        self.home = home
        self.nodes = nodes
        self._shape = shape
        self.cluster_id = cluster_id

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{node.port}" for node in self.brokers)

    @property
    def brokers(self) -> list[LocalNode]:
        return self._shape.brokers(self.nodes)

    @property
    def metrics_listeners(self) -> list[str]:
        return [node.metrics_listener for node in self.nodes if node.metrics_listener]

    @classmethod
    def prepare(
        cls, home: Path, shape: Shape, port: int, settings: Mapping[str, str] = MappingProxyType({})
    ) -> "LocalCluster":
        """Directories, configuration and format of every node. Raises CommandError where a start cannot work, SettingError
        where a node could not have these ``settings``; nothing is written then."""
        nodes = shape.nodes(home, port)
        replicas = min(len(shape.brokers(nodes)), REPLICAS_MAX)
        quorum = {"controller.quorum.voters": shape.voters(nodes)}
        texts = {node.node_id: node.texts(quorum, replicas, shape.roles(node.node_id)) for node in nodes}
        for node in nodes:
            ServerConfig({**texts[node.node_id], **settings}, "--set")
        _refuse_another_shape(home, nodes, shape)
        for node in nodes:
            if node.alive_pid() is not None:
                raise CommandError(
                    f"{home} is in use: node {node.node_id} runs as pid {node.pid()}; stop it (`{stop_command(home)}`), "
                    "or give another --dir"
                )
            for port_of_it in node.ports(shape.roles(node.node_id)):
                _refuse_taken_port(port_of_it)
        cluster_id = _cluster_id(home)
        for node in nodes:
            node.write_properties(texts[node.node_id])
            node.set(settings)
            format_directories(node.properties, cluster_id, ignore_formatted=True)
        return cls(home, nodes, shape, cluster_id)

    @classmethod
    def running(cls, home: Path, shape: Shape, port: int) -> "LocalCluster | None":
        """The cluster of this shape if all of its nodes run already and serve."""
        nodes = shape.nodes(home, port)
        if not all(node.alive_pid() is not None and node.ready_file.exists() for node in nodes):
            return None
        _refuse_another_shape(home, nodes, shape)
        return cls(home, nodes, shape, _cluster_id(home))

    @classmethod
    def found(cls, home: Path) -> "LocalCluster":
        """Whatever nodes lie there, to stop them. Raises CommandError when there are none."""
        names = (each.name.removeprefix("node-") for each in home.glob("node-*"))
        numbers = sorted(int(name) for name in names if name.isdecimal())
        if not numbers:
            raise CommandError(f"{home} holds no nodes: give the --dir that `ottla up` was given")
        return cls(home, [LocalNode(home, number, 0) for number in numbers], Shape(both=len(numbers)), "")

    def refuse_other_settings(self, settings: Mapping[str, str]) -> None:
        """Raises CommandError when the nodes, which run, were started without one of these."""
        for node in self.nodes:
            for name, text in settings.items():
                if node.has(name) != text:
                    raise CommandError(
                        f"--set {name}={text} takes effect at a start, and node {node.node_id} runs: "
                        f"`{stop_command(self.home)}` first"
                    )

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns when every node takes requests. Raises CommandError as soon as one has ended."""
        deadline = time.monotonic() + timeout_s
        waiting = list(self.nodes)
        while waiting:
            for node in list(waiting):
                if node.ready_file.exists():
                    waiting.remove(node)
                elif node.process and node.process.poll() is not None:
                    raise CommandError(f"node {node.node_id} did not start: {node.last_log_line()}")
            if time.monotonic() > deadline:
                raise CommandError(
                    f"node {waiting[0].node_id} was not ready after {timeout_s:.0f} s; see {waiting[0].log_file}"
                )
            time.sleep(POLL_S)

    def stop(self, timeout_s: float) -> list[LocalNode]:
        """Asks every node to stop (SIGTERM) and waits; returns those that still run."""
        pids = {node.node_id: pid for node in self.nodes if (pid := node.alive_pid()) is not None}
        asked = {node_id: (pid, begun(pid)) for node_id, pid in pids.items()}
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        left = self.nodes
        while left and time.monotonic() < deadline:
            left = [node for node in left if _is_there(node, *asked.get(node.node_id, (0, None)))]
            time.sleep(POLL_S)
        return left


def _is_there(node: LocalNode, pid: int, since: int | None) -> bool:
    """A pid file goes before its process, which has the directory and the ports until then."""
    return node.alive_pid() is not None or not node.has_exited() or (since is not None and begun(pid) == since)


def _refuse_another_shape(home: Path, nodes: Sequence[LocalNode], shape: Shape) -> None:
    """A directory of other nodes has voters of its own: it cannot simply be started as this one."""
    there = sorted(each.name for each in home.glob("node-*")) if home.exists() else []
    wanted = sorted(node.home.name for node in nodes)
    if there and there != wanted:
        raise CommandError(
            f"{home} holds {len(there)} nodes, not {len(wanted)}: use the options it was made with, or another --dir"
        )
    for node in nodes:
        if node.properties.exists():
            _refuse_another_node(node, shape.roles(node.node_id))


def _refuse_another_node(node: LocalNode, roles: tuple[str, ...]) -> None:
    texts = parse_properties(text_of(node.properties), str(node.properties))
    has = {role.strip() for role in texts.get("process.roles", "").split(",")}
    if has != set(roles):
        raise CommandError(
            f"{node.properties} is of a {' and '.join(sorted(has))}, not of a {' and '.join(roles)}: "
            "use the options it was made with, or another --dir"
        )
    port = node.port if "broker" in roles else node.controller_port
    if f"localhost:{port}" not in texts.get("listeners", ""):
        raise CommandError(
            f"{node.properties} does not listen on port {port}: use the --port it was made with, or another --dir"
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
            RealDisk().write_atomically(str(path), f"{new_cluster_id()}\n".encode())
        except OSError as error:
            raise CommandError(f"cannot write to {home}: {error.strerror}; give a --dir that can be written") from error
    return path.read_text(encoding="utf-8").strip()
