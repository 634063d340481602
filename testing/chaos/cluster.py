"""A cluster of real processes in which every way from one node to another, and from clients to a broker, has its own proxy."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli.client import Client
from ottla.cli.failures import CommandError
from ottla.cli.local_cluster import LocalCluster, Shape
from ottla.cli.local_node import CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET, LocalNode
from ottla.runtime.settings.server import ADVERTISED, DETOURS
from ottla.testing.chaos.libraries import Library
from ottla.testing.chaos.links import CLIENTS, QUORUM, REPLICATION, Ends, Link, between, links_of
from ottla.testing.chaos.proxies import HOST, Attributes, ProxyServer
from ottla.testing.last_words import listen_to
from ottla.testing.lifetime import Lifetime
from ottla.testing.ports import free_port_block
from ottla.testing.processes import wait_for

COMBINED = Shape(both=3)
SEPARATE = Shape(only_brokers=3, only_controllers=3)
SHAPES = {"combined": COMBINED, "separate": SEPARATE}

START_S = 180.0
"""For a node to take requests; a second or two where the machine has nothing else to do."""
_ANSWER_S = 5.0

Response = TypeVar("Response", bound=msgspec.Struct)
_ENDING = (signal.SIGKILL, signal.SIGTERM)


class ChaosCluster(Lifetime):
    """``with ChaosCluster(server, home) as cluster``: nodes that know one another, and that clients know, by proxies only.

    Brokers are 1, 2, 3; the controllers are the same nodes, or 4, 5, 6 where the shape says so.
    """

    def __init__(
        self,
        server: ProxyServer,
        home: Path,
        shape: Shape = COMBINED,
        settings: Mapping[str, str] = MappingProxyType({}),
        library: Library | None = None,
    ) -> None:
        """``settings`` are added to every node's server.properties, ``library`` is what the processes are loaded with."""
        self.server = server
        self.home = home
        self.shape = shape
        port = free_port_block(sum(shape), (0, CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET))
        self.local = LocalCluster.prepare(home, shape, port, settings)
        listen_to(self.local)
        self.nodes = {node.node_id: node for node in self.local.nodes}
        self.broker_ids = tuple(node.node_id for node in self.local.brokers)
        self.controller_ids = tuple(each for each in self.nodes if "controller" in shape.roles(each))
        links = links_of(self.broker_ids, self.controller_ids)
        base = free_port_block(len(links))
        self.ends = {link: Ends(link, base + at, self._port_of(link)) for at, link in enumerate(links)}
        self._tag = f"{base}-"
        for node in self.local.nodes:
            if library is not None:
                node.environment.update(library.environment(node))
            node.set(self._addresses(node.node_id))

    # Where everybody is.

    @property
    def links(self) -> list[Link]:
        return list(self.ends)

    @property
    def bootstrap_servers(self) -> str:
        """Through the clients' proxies."""
        return ",".join(self._proxied(Link(CLIENTS, 0, broker)) for broker in self.broker_ids)

    def direct(self, broker: int) -> str:
        """A broker's own address, for who watches: no proxy is on that way."""
        return f"{HOST}:{self.nodes[broker].port}"

    def data_directories(self) -> dict[int, tuple[Path, ...]]:
        found = {}
        for broker in self.broker_ids:
            paths = self.nodes[broker].has("log.dirs") or ""
            found[broker] = tuple(Path(each) for each in paths.split(","))
        return found

    def links_to_clients(self, brokers: Iterable[int]) -> list[Link]:
        return [Link(CLIENTS, 0, broker) for broker in brokers]

    def links_of_kind(self, kind: str) -> list[Link]:
        return [each for each in self.ends if each.kind == kind]

    def links_between(self, one: Iterable[int], other: Iterable[int]) -> list[Link]:
        return between(self.ends, one, other)

    def others(self, node_id: int) -> list[int]:
        return [each for each in self.nodes if each != node_id]

    def ports(self, links: Iterable[Link]) -> list[int]:
        """Where their proxies listen."""
        return [self.ends[each].listen for each in links]

    def _port_of(self, link: Link) -> int:
        node = self.nodes[link.target]
        return node.controller_port if link.kind == QUORUM else node.port

    def _proxied(self, link: Link) -> str:
        return f"{HOST}:{self.ends[link].listen}"

    def _addresses(self, node_id: int) -> dict[str, str]:
        """What its server.properties say of addresses."""
        detours = []
        for link in self.ends:
            if link.source == node_id and link.kind == QUORUM:
                detours.append(f"localhost:{self.nodes[link.target].controller_port}={self._proxied(link)}")
            elif link.source == node_id and link.kind == REPLICATION:
                detours.append(f"{self._proxied(Link(CLIENTS, 0, link.target))}={self._proxied(link)}")
        texts = {DETOURS: ",".join(detours)}
        if node_id in self.broker_ids:
            texts[ADVERTISED] = f"PLAINTEXT://{self._proxied(Link(CLIENTS, 0, node_id))}"
        return texts

    # Its life.

    def _begin(self) -> None:
        for ends in self.ends.values():
            self.server.proxy(self.name(ends.link), ends.listen, ends.upstream)
        self.local.start()
        for node_id in self.nodes:
            self.wait_ready(node_id)

    def close(self) -> None:
        for node_id in self.nodes:
            self.send(node_id, signal.SIGCONT)
        for node in self.local.stop(timeout_s=10):
            self.send(node.node_id, signal.SIGKILL)
        for link in self.ends:
            self.server.remove(self.name(link))

    # Links.

    def name(self, link: Link) -> str:
        """Of its proxy: a server may have those of several clusters."""
        return self._tag + link.name

    def cut(self, links: Iterable[Link]) -> None:
        """Connections end, and new ones are refused."""
        self.server.cut(self._names(links))

    def heal(self, links: Iterable[Link] | None = None) -> None:
        """All, those of the server's other clusters too, unless told which."""
        if links is None:
            self.server.heal_all()
        else:
            self.server.heal(self._names(links))

    def give(self, links: Iterable[Link], toxic: str, kind: str, stream: str, attributes: Attributes) -> None:
        self.server.give(self._names(links), toxic, kind, stream, attributes)

    def take(self, links: Iterable[Link], toxic: str) -> None:
        self.server.take(self._names(links), toxic)

    def _names(self, links: Iterable[Link]) -> list[str]:
        return [self.name(each) for each in links]

    # Processes.

    def is_alive(self, node_id: int) -> bool:
        return self.nodes[node_id].alive_pid() is not None

    def kill(self, node_id: int, number: signal.Signals = signal.SIGKILL) -> int:
        """Sends a signal, and waits for the process's end if that ends it. Its pid."""
        node = self.nodes[node_id]
        pid = node.alive_pid()
        if pid is None:
            raise ProcessLookupError(f"node {node_id} does not run")
        os.kill(pid, number)
        if number in _ENDING:
            wait_for(lambda: node.alive_pid() is None and node.has_exited(), f"node {node_id} to end", 60)
        return pid

    def start(self, node_id: int, *, wait: bool = True) -> None:
        self.nodes[node_id].start()
        if wait:
            self.wait_ready(node_id)

    def wait_ready(self, node_id: int) -> None:
        node = self.nodes[node_id]
        deadline = time.monotonic() + START_S
        while not node.ready_file.exists():
            if node.alive_pid() is None:
                raise CommandError(f"node {node_id} did not start: {node.last_log_line()}")
            if time.monotonic() > deadline:
                raise CommandError(f"node {node_id} was not ready after {START_S:.0f} s: {node.last_log_line()}")
            time.sleep(0.02)

    def revive(self) -> list[int]:
        """Starts whoever does not run; those."""
        dead = [each for each in self.nodes if not self.is_alive(each)]
        for node_id in dead:
            self.start(node_id, wait=False)
        for node_id in dead:
            self.wait_ready(node_id)
        return dead

    def restore(self) -> None:
        """Whatever a fault left: links heal, who was stopped goes on, who does not run is started."""
        self.heal()
        for node_id in self.nodes:
            self.send(node_id, signal.SIGCONT)
        self.revive()
        for node_id in self.nodes:
            self.wait_ready(node_id)

    def send(self, node_id: int, number: signal.Signals) -> None:
        pid = self.nodes[node_id].alive_pid()
        if pid is not None:
            os.kill(pid, number)

    def wait_for_topic(self, topic: str, partitions: int = 1) -> None:
        """Until every broker knows it, with leaders."""
        asked = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)

        def knows(broker: int) -> bool:
            answer = self._ask_quietly(broker, asked, MetadataResponse)
            found = answer.topics[0].partitions if answer is not None else []
            return len(found) == partitions and all(each.leader_id > 0 for each in found)

        for broker in self.broker_ids:
            wait_for(lambda broker=broker: knows(broker), f"broker {broker} to know {topic}")  # type: ignore[misc]  # bound now

    # Questions, past all proxies.

    def ask(self, broker: int, request: msgspec.Struct, response: type[Response]) -> Response:
        """Raises CommandError."""
        with Client(self.direct(broker), _ANSWER_S) as client:
            return client.call(request, response)

    def ask_any(self, request: msgspec.Struct, response: type[Response], good: Callable[[Response], bool]) -> Response:
        """The first good answer of any broker, within half a minute. Raises TimeoutError."""
        found: list[Response] = []

        def look() -> bool:
            for broker in self.broker_ids:
                answer = self._ask_quietly(broker, request, response)
                if answer is not None and good(answer):
                    found.append(answer)
                    return True
            return False

        wait_for(look, f"a good answer to {type(request).__name__}")
        return found[0]

    def _ask_quietly(self, broker: int, request: msgspec.Struct, response: type[Response]) -> Response | None:
        if not is_running(self.nodes[broker]):
            return None
        try:
            return self.ask(broker, request, response)
        except (CommandError, OSError):
            return None


def is_running(node: LocalNode) -> bool:
    """Alive and not stopped by a signal: who asks a stopped one waits."""
    pid = node.alive_pid()
    return pid is not None and process_state(pid) != "T"


def process_state(pid: int) -> str:
    """As /proc has it: R, S, D, T; empty where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def servers(cluster: ChaosCluster, brokers: Sequence[int]) -> str:
    """Direct addresses, as bootstrap.servers has them."""
    return ",".join(cluster.direct(each) for each in brokers)
