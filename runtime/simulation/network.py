"""The network between simulated machines: names, links, connections and what can go wrong with them."""

import asyncio
import errno
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.runtime.simulation.link import Link
from ottla.runtime.simulation.listener import AcceptedSocket
from ottla.runtime.simulation.pipe import End, Pipe
from ottla.runtime.simulation.process import Process
from ottla.runtime.simulation.server import ProtocolFactory, SimulatedServer
from ottla.runtime.simulation.transport import SimulatedTransport

if TYPE_CHECKING:
    from ottla.runtime.simulation.loop import SimulationLoop
    from ottla.runtime.simulation.node import SimulatedNode

_REMOTE_DELAY_NS = (100_000, 600_000)
_LOCAL_DELAY_NS = (15_000, 50_000)
_FIRST_EPHEMERAL_PORT = 32768
_CONNECT_TRIES = 7  # Linux: tcp_syn_retries 6, the waits double from 1 s, 127 s in all
_OWN_NAMES = ("localhost", "127.0.0.1", "::1")
_ANY = (None, "", "0.0.0.0", "::")  # noqa: S104 - names to compare with, not an address to bind
_REFUSED_OPTIONS = ("ssl", "sock")


class Network:
    """All links and connections of a simulation. Host names are the nodes' names."""

    def __init__(self, loop: "SimulationLoop") -> None:
        self._loop = loop
        self._rng = loop.rng("network")
        self.draw = self._rng.random
        self._links: dict[tuple[int, int], Link] = {}
        self._servers: dict[tuple[int, int], SimulatedServer] = {}
        self._connections: dict[int, tuple[SimulatedTransport, SimulatedTransport]] = {}
        self._connections_made = 0
        self._next_port: dict[int, int] = {}

    # --- names

    def _resolve(self, process: Process, host: str) -> "SimulatedNode":
        if host in _ANY or host in _OWN_NAMES:
            return process.node
        for node in self._loop.nodes.values():
            if host in (node.name, node.address):
                return node
        raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {host}")

    def addresses(self, process: Process, host: str | bytes, port: int | str) -> list[tuple[Any, ...]]:
        """What getaddrinfo answers: one IPv4 address, or socket.gaierror."""
        name = host.decode() if isinstance(host, bytes) else host
        address = (self._resolve(process, name).address, int(port or 0))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]

    def _free_port(self, node: "SimulatedNode") -> int:
        port = self._next_port.get(node.number, _FIRST_EPHEMERAL_PORT)
        while (node.number, port) in self._servers:
            port += 1
        self._next_port[node.number] = port + 1 if port < 65535 else _FIRST_EPHEMERAL_PORT
        return port

    # --- listening

    def listen(
        self,
        process: Process,
        factory: ProtocolFactory,
        host: str | None,
        port: int | None,
        *,
        backlog: int = 100,
        start_serving: bool = True,
        **options: Any,
    ) -> SimulatedServer:
        """OSError EADDRINUSE when the port is taken, EADDRNOTAVAIL when the host is another machine."""
        _refuse(options)
        if host not in _ANY and self._resolve(process, host or "") is not process.node:
            raise OSError(errno.EADDRNOTAVAIL, f"could not bind on any address out of {host}:{port}")
        port = port or self._free_port(process.node)
        key = (process.node.number, port)
        if key in self._servers:
            message = f"error while attempting to bind on address ({host!r}, {port}): address already in use"
            raise OSError(errno.EADDRINUSE, message)
        server = SimulatedServer(self, process, factory, (host or "0.0.0.0", port), backlog)  # noqa: S104 - any address of a simulated node
        self._servers[key] = server
        if start_serving:
            server.serve()
        return server

    def attach(
        self, factory: ProtocolFactory, accepted: AcceptedSocket, **options: Any
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """A transport for what the program accepted by itself."""
        _refuse(options)
        transport, protocol = accepted.transport, factory()
        accepted.is_attached = True
        transport.attach(protocol)
        return transport, protocol

    def is_bound(self, server: SimulatedServer) -> bool:
        return self._servers.get((server.process.node.number, server.address[1])) is server

    def unbind(self, server: SimulatedServer) -> None:
        if self.is_bound(server):
            del self._servers[server.process.node.number, server.address[1]]

    # --- connecting

    async def connect(
        self, process: Process, factory: ProtocolFactory, host: str, port: int, **options: Any
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """ConnectionRefusedError after a round trip when nobody listens; TimeoutError after 127 s when nobody answers."""
        _refuse(options)
        node = self._resolve(process, host)
        made: asyncio.Future[SimulatedTransport] = self._loop.create_future()
        self._knock(_Attempt(process, node, int(port), made), 1)
        try:
            transport = await made
        except asyncio.CancelledError:
            if made.done() and not made.cancelled() and made.exception() is None:
                made.result().close_socket()
            raise
        protocol = factory()
        transport.attach(protocol)
        return transport, protocol

    def _knock(self, attempt: "_Attempt", number: int) -> None:
        """Sends one SYN, and sees to the next one in case it stays unanswered."""
        if attempt.process.dead or attempt.made.done() or attempt.answered:
            return
        loop = self._loop
        if number > _CONNECT_TRIES:
            error = TimeoutError(errno.ETIMEDOUT, f"Connect call failed ({attempt.node.name!r}, {attempt.port})")
            attempt.made.set_exception(error)
            return
        wait_ns = 1_000_000_000 << (number - 1)
        loop.at_ns(loop.now_ns + wait_ns, loop.harness, self._knock, attempt, number + 1)
        there = self.link(attempt.process.node, attempt.node)
        if not there.cut:
            loop.at_ns(loop.now_ns + there.draw_delay_ns(), loop.harness, self._answer, attempt)

    def _answer(self, attempt: "_Attempt") -> None:
        """A SYN has reached its machine."""
        node, loop = attempt.node, self._loop
        there, back = self.link(attempt.process.node, node), self.link(node, attempt.process.node)
        if there.cut or back.cut or not node.up or attempt.answered or attempt.process.dead:
            return
        server = self._servers.get((node.number, attempt.port))
        back_ns = loop.now_ns + back.draw_delay_ns()
        if server is None or not server.is_serving():
            attempt.answered = True
            message = f"Connect call failed ({node.name!r}, {attempt.port})"
            error = ConnectionRefusedError(errno.ECONNREFUSED, message)
            loop.at_ns(back_ns, attempt.process, _fail, attempt.made, error)
        elif server.takes_more():
            attempt.answered = True
            ours, theirs = self._join(attempt.process, server, there, back)
            loop.at_ns(back_ns, attempt.process, _deliver, attempt.made, ours)
            server.enqueue(theirs)
            loop.at_ns(back_ns + there.draw_delay_ns(), server.process, server.accept, theirs, context=theirs.context)

    def _join(
        self, process: Process, server: SimulatedServer, there: Link, back: Link
    ) -> tuple[SimulatedTransport, SimulatedTransport]:
        self._connections_made += 1
        number = self._connections_made
        out, into = Pipe(self._loop, there, back), Pipe(self._loop, back, there)
        name = (process.node.address, self._free_port(process.node))
        peer = (server.process.node.address, server.address[1])
        ours = SimulatedTransport(process, number, out, into, name, peer)
        theirs = SimulatedTransport(server.process, number, into, out, peer, name)
        out.connect(ours, theirs)
        into.connect(theirs, ours)
        self._connections[number] = (ours, theirs)
        detail = f"{process.node.name}->{server.process.node.name}:{server.address[1]}"
        self._loop.trace.event(self._loop.now_ns, process.node.name, "connect", f"connection={number}", detail)
        return ours, theirs

    def closed(self, transport: SimulatedTransport) -> None:
        """One end is closed; when both are, nothing is left to know."""
        ends = self._connections.get(transport.number)
        if ends is not None and all(end.closed for end in ends):
            del self._connections[transport.number]

    # --- machines that end

    def process_ended(self, process: Process, *, quiet: bool) -> None:
        """The kernel closes a dead process's sockets. ``quiet``: the kernel died too, and nobody hears of it."""
        for server in [server for server in self._servers.values() if server.process is process]:
            self.unbind(server)
            process.remains.append(server)
        for ends in list(self._connections.values()):
            for end in ends:
                if end.process is process and not end.closed:
                    process.remains.append(end)
                    end.die(quiet=quiet)

    def machine_is_back(self, node: "SimulatedNode") -> None:
        for ends in list(self._connections.values()):
            for end in ends:
                if end.process.node is node and end.process.dead:
                    end.into.machine_is_back()

    # --- faults

    def link(self, source: "SimulatedNode", target: "SimulatedNode") -> Link:
        """The link from ``source`` to ``target``; the other direction is another one."""
        key = (source.number, target.number)
        link = self._links.get(key)
        if link is None:
            delay_ns = _LOCAL_DELAY_NS if source is target else _REMOTE_DELAY_NS
            link = self._links[key] = Link(source, target, self._rng, delay_ns)
        return link

    def cut(self, source: "SimulatedNode", target: "SimulatedNode") -> None:
        """Nothing gets from ``source`` to ``target`` until `mend`. The other direction goes on."""
        self._log("cut", source.name, target.name)
        self.link(source, target).sever()

    def mend(self, source: "SimulatedNode", target: "SimulatedNode") -> None:
        """Undoes one `cut`. What was held is delivered, in order, after a retransmission delay."""
        self._log("mend", source.name, target.name)
        self.link(source, target).mend()

    def cut_between(self, some: Iterable["SimulatedNode"], others: Iterable["SimulatedNode"]) -> None:
        """Both directions, between every node of ``some`` and every node of ``others``."""
        others = list(others)
        for one in some:
            for other in others:
                if one is not other:
                    self.cut(one, other)
                    self.cut(other, one)

    def mend_all(self) -> None:
        """Every cut link."""
        for link in list(self._links.values()):
            while link.cut:
                self.mend(link.source, link.target)

    def reset_between(self, one: "SimulatedNode", other: "SimulatedNode") -> None:
        """Every connection between the two breaks at both ends, as when a firewall forgets its state."""
        self._log("reset", one.name, other.name)
        for ends in list(self._connections.values()):
            if {end.process.node.number for end in ends} == {one.number, other.number}:
                for end in ends:
                    if not end.closed:
                        end.process.run(end.ended, End.RESET)

    def _log(self, kind: str, *detail: str) -> None:
        self._loop.trace.event(self._loop.now_ns, "network", kind, *detail)


class _Attempt:
    """A connection that is being made."""

    def __init__(
        self, process: Process, node: "SimulatedNode", port: int, made: "asyncio.Future[SimulatedTransport]"
    ) -> None:
        self.process = process
        self.node = node
        self.port = port
        self.made = made
        self.answered = False


def _refuse(options: dict[str, Any]) -> None:
    for name in _REFUSED_OPTIONS:
        if options.get(name):
            raise NotImplementedError(f"{name} is not simulated")


def _deliver(made: "asyncio.Future[SimulatedTransport]", transport: SimulatedTransport) -> None:
    if made.done():
        transport.close_socket()
    else:
        made.set_result(transport)


def _fail(made: "asyncio.Future[SimulatedTransport]", error: OSError) -> None:
    if not made.done():
        made.set_exception(error)
