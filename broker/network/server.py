"""The listening sockets, and the connections they gave birth to."""

import asyncio
import logging
import os
import socket
from contextlib import suppress
from functools import partial

from ottla.broker.network.budget import MemoryBudget
from ottla.broker.network.connection import Connection
from ottla.broker.network.counters import ListenerCounters
from ottla.broker.network.limits import ServerLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.routing import RouteTable
from ottla.broker.network.turn import Turn
from ottla.runtime.loop_watch import LoopWatch
from ottla.runtime.seldom import Seldom

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 16
_SWEEPS_PER_IDLE_TIME = 4
_SWEEP_SECONDS_MAX = 30.0
_LAST_ANSWERS_SECONDS = 1.0
_RELIEF_SECONDS = 2.0
"""So long a client may hold memory that is short and do nothing about it."""


class _Visitor:
    """The server's notes about one connection."""

    __slots__ = ("address", "connection", "quiet_sweeps", "stuck_at")

    def __init__(self, connection: Connection, address: str) -> None:
        self.connection = connection
        self.address = address
        self.quiet_sweeps = 0
        self.stuck_at: tuple[str, int] | None = None  # what it held when memory was short, and how far it was


class NetworkServer:
    """Accepts clients on any number of listeners, within the limits, and closes those that fell silent."""

    def __init__(self, limits: ServerLimits | None = None, loop_watch: LoopWatch | None = None) -> None:
        self.limits = limits or ServerLimits()
        self.budget = MemoryBudget(self.limits.memory_bytes_max, self._memory_turned)
        self._pool = ReceivePool(self.budget)
        self._turn = Turn(loop_watch=loop_watch)
        self._servers: list[asyncio.Server] = []
        self._visitors: dict[Connection, _Visitor] = {}
        self._per_address: dict[str, int] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._relief_timer: asyncio.TimerHandle | None = None
        self._quiet: list[Connection] = []  # at the last sweep
        self._refusals, self._shortages, self._evictions = Seldom(logger), Seldom(logger), Seldom(logger)
        self.counters: list[ListenerCounters] = []
        self.tables: dict[RouteTable, None] = {}
        self._all_gone: asyncio.Event | None = None

    @property
    def connection_count(self) -> int:
        return len(self._visitors)

    async def bind(self, name: str, host: str, port: int, routes: RouteTable) -> int:
        """Takes the address; clients are refused until ``start``. Returns the port (of interest when 0 was asked).

        Raises OSError when the address is taken or not ours.
        """
        loop = asyncio.get_running_loop()
        counters = ListenerCounters(name)
        self.counters.append(counters)
        self.tables[routes] = None
        server = await loop.create_server(
            partial(self._new_connection, counters, routes),
            host or None,
            port,
            backlog=self.limits.backlog,
            start_serving=False,
        )
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        for listening in server.sockets:
            await self._accept_more(listening.fileno(), counters, routes)
        return bound

    async def _accept_more(self, descriptor: int, counters: ListenerCounters, routes: RouteTable) -> None:
        """More handles on one listening socket: libuv accepts one connection a turn and handle, and a crowd that comes
        together while others are served would wait for seconds (after a failover, all clients come together)."""
        if descriptor < 0:
            return  # a simulated socket
        for _ in range(ACCEPTS_PER_TURN - 1):
            copy = socket.socket(fileno=os.dup(descriptor))
            copy.setblocking(False)
            factory = partial(self._new_connection, counters, routes)
            more = await asyncio.get_running_loop().create_server(
                factory, sock=copy, backlog=self.limits.backlog, start_serving=False
            )
            self._servers.append(more)

    async def start(self) -> None:
        """Begins to accept on everything that was bound."""
        for server in self._servers:
            await server.start_serving()
        self._schedule_sweep()

    async def stop(self) -> None:
        """Closes the listeners and all connections. Answers already given leave, if their clients take them in a second."""
        for timer in (self._sweep_timer, self._relief_timer):
            if timer is not None:
                timer.cancel()
        self._sweep_timer = self._relief_timer = None
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        for connection in list(self._visitors):
            connection.close()
        if self._visitors:
            self._all_gone = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), _LAST_ANSWERS_SECONDS)
        for connection in list(self._visitors):
            connection.abort()

    def _new_connection(self, counters: ListenerCounters, routes: RouteTable) -> Connection:
        return Connection(
            routes,
            self._pool,
            self.limits.connection,
            counters.listener,
            on_made=self._admit,
            on_lost=self._forget,
            counters=counters,
            turn=self._turn,
        )

    def _admit(self, connection: Connection) -> None:
        address = connection.peer.rpartition(":")[0]
        limits = self.limits
        connection.counters.accepted += 1
        of_address = self._per_address.get(address, 0)
        self._visitors[connection] = _Visitor(connection, address)
        self._per_address[address] = of_address + 1
        is_protected = connection.counters.listener == limits.protected_listener
        if len(self._visitors) > limits.connections_max and not is_protected:
            self._refuse(connection, f"max.connections={limits.connections_max} is reached")
            return
        if len(self._visitors) > limits.descriptors_max and not self._make_room():
            words = f"clients have their {limits.descriptors_max} descriptors, the others are for logs and peers: raise ulimit -n"
            self._refuse(connection, words)
            return
        of_address_max = limits.connections_per_ip_overrides.get(address, limits.connections_per_ip_max)
        if of_address >= of_address_max:
            self._refuse(connection, f"max.connections.per.ip={of_address_max} is reached for {address}")

    def _refuse(self, connection: Connection, reason: str) -> None:
        connection.counters.refused += 1
        self._refusals.warn("Closed the connection from %s: %s", connection.peer, reason)
        connection.close()

    def _make_room(self) -> bool:
        """Who said nothing for a while makes room for who comes: else a crowd that only sits there keeps everybody out."""
        while self._quiet:
            quiet = self._quiet.pop()
            if quiet in self._visitors and not quiet.active and not quiet.in_flight and not quiet.closed:
                words = "Closed the connection from %s, which was silent: clients have their %d descriptors"
                self._evictions.warn(words, quiet.peer, self.limits.descriptors_max)
                quiet.abort()
                return True
        return False

    def _forget(self, connection: Connection) -> None:
        visitor = self._visitors.pop(connection, None)
        if visitor is None:
            return
        connection.counters.closed += 1
        if self._all_gone is not None and not self._visitors:
            self._all_gone.set()
        left = self._per_address[visitor.address] - 1
        if left:
            self._per_address[visitor.address] = left
        else:
            del self._per_address[visitor.address]

    # Memory that is short: one timer, only then.

    def _memory_turned(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.budget.is_full:
            loop.call_soon(self.budget.let_in)  # not from here: somebody is about to give more back
        elif self._relief_timer is None:
            self._relief_timer = loop.call_later(_RELIEF_SECONDS, self._relieve)

    def _relieve(self) -> None:
        """Closes who held memory and did nothing about it since it was looked at last."""
        self._relief_timer = None
        closed = 0
        for connection, visitor in list(self._visitors.items()):
            before, visitor.stuck_at = visitor.stuck_at, connection.stuck_at() if self.budget.is_full else None
            if before is not None and before == visitor.stuck_at:
                closed += 1
                limit = self.budget.bytes_max
                words = "Closed the connection from %s: queued.max.request.bytes=%d is reached, and it %s"
                self._shortages.warn(words, connection.peer, limit, before[0])
                connection.abort()
        if self.budget.is_full:
            if not closed:
                self.budget.let_one_in()
            self._relief_timer = asyncio.get_running_loop().call_later(_RELIEF_SECONDS, self._relieve)

    # Idle connections: one timer for all.

    def _schedule_sweep(self) -> None:
        seconds = _SWEEP_SECONDS_MAX
        if self.limits.idle_ms_max >= 0:
            seconds = min(seconds, self.limits.idle_ms_max / 1000 / _SWEEPS_PER_IDLE_TIME)
        self._sweep_timer = asyncio.get_running_loop().call_later(seconds, self._sweep, seconds)

    def _sweep(self, seconds: float) -> None:
        idle_seconds = self.limits.idle_ms_max / 1000
        self._quiet = []
        for connection, visitor in list(self._visitors.items()):
            if connection.active:
                connection.active = False
                visitor.quiet_sweeps = 0
                continue
            visitor.quiet_sweeps += 1
            connection.trim()
            if connection.closed:
                connection.abort()  # it had a sweep's time to take its last answers
            elif connection.in_flight:
                continue
            elif 0 <= idle_seconds <= visitor.quiet_sweeps * seconds:
                connection.close()
            else:
                self._quiet.append(connection)
        self._schedule_sweep()
