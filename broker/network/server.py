"""The listening sockets, and the connections they gave birth to."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ottla.broker.network.accepting import Acceptor, Welcome, bind
from ottla.broker.network.admission import Admission
from ottla.broker.network.beside import Beside
from ottla.broker.network.budget import MemoryBudget
from ottla.broker.network.connection import Connection
from ottla.broker.network.counters import ListenerCounters
from ottla.broker.network.host_names import names_in, with_addresses
from ottla.broker.network.limits import OVERRIDES, ServerLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.routing import RouteTable
from ottla.broker.network.times import RequestTimes
from ottla.broker.network.turn import Turn
from ottla.runtime.loop_watch import LoopWatch
from ottla.runtime.seldom import Seldom
from ottla.runtime.settings.security import PLAINTEXT
from ottla.runtime.settings.setting_error import SettingError

logger = logging.getLogger(__name__)

_SWEEPS_PER_IDLE_TIME = 4
_SWEEP_SECONDS_MIN, _SWEEP_SECONDS_MAX = 0.01, 30.0
_LAST_ANSWERS_SECONDS = 1.0
_RELIEF_SECONDS = 2.0
"""So long a client may hold memory that is short and do nothing about it."""


class _Visitor:
    """The server's notes about one connection."""

    __slots__ = ("connection", "quiet_sweeps", "stuck_at")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.quiet_sweeps = 0
        self.stuck_at: tuple[str, int] | None = None  # what it held when memory was short, and how far it was


class NetworkServer:
    """Accepts clients on any number of listeners, within the limits, and closes those that fell silent."""

    def __init__(self, limits: ServerLimits | None = None, loop_watch: LoopWatch | None = None) -> None:
        self.limits = limits or ServerLimits()
        self.budget = MemoryBudget(self.limits.memory_bytes_max, self._memory_turned)
        self._pool = ReceivePool(self.budget)
        self._turn = Turn(loop_watch=loop_watch)
        self._beside = Beside()
        self.times = RequestTimes()
        self._turn.loop_watch.at_page_turns.append(self.times.turn_page)
        self._acceptors: list[tuple[Acceptor, Welcome]] = []
        self._admission = Admission()
        self._admitted: dict[Connection, str] = {}  # with their addresses
        self._coming: set[asyncio.Task[Any]] = set()  # those that get their transport; the loop keeps no task alive
        self._looking_up: set[asyncio.Task[Any]] = set()  # hosts
        self._visitors: dict[Connection, _Visitor] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._relief_timer: asyncio.TimerHandle | None = None
        self._quiet: list[Connection] = []  # at the last sweep
        self._refusals, self._shortages, self._evictions = Seldom(logger), Seldom(logger), Seldom(logger)
        self.counters: list[ListenerCounters] = []
        self.tables: dict[RouteTable, None] = {}
        self._all_gone: asyncio.Event | None = None
        self._stopped = False

    @property
    def connection_count(self) -> int:
        return self._admission.count

    async def find_hosts(self) -> None:
        """Looks up the hosts that limits name, before anybody comes. Raises SettingError for one that nobody knows."""
        missing = await self._find_hosts()
        if missing:
            raise SettingError(f"{OVERRIDES}: no address is known of {', '.join(missing)}")

    def change_limits(self, limits: ServerLimits) -> None:
        """For who comes from now on; for hosts by name once they are looked up."""
        self.limits = limits
        if names_in(limits):
            task = asyncio.get_running_loop().create_task(self._find_changed_hosts(), name="find hosts")
            self._looking_up.add(task)
            task.add_done_callback(self._looking_up.discard)

    async def _find_changed_hosts(self) -> None:
        missing = await self._find_hosts()
        if missing:
            logger.warning("%s: no address is known of %s: no limit of their own", OVERRIDES, ", ".join(missing))

    async def _find_hosts(self) -> list[str]:
        limits = self.limits
        found, missing = await with_addresses(limits)
        if self.limits is limits:  # else they were changed meanwhile, and those are looked up too
            self.limits = found
        return missing

    async def bind(
        self, name: str, host: str, port: int, routes: RouteTable, security_protocol: str = PLAINTEXT
    ) -> int:
        """Takes the address; clients are refused until ``start``. Returns the port (of interest when 0 was asked).

        Requests are timed if the loop is watched. Raises OSError when the address is taken or not ours, SettingError as `find_hosts`.
        """
        await self.find_hosts()
        acceptors = await bind(host, port, self.limits.backlog)
        counters = self._listener(name, routes)
        welcome = partial(self._welcome, partial(self._new_connection, counters, routes, security_protocol), counters)
        self._acceptors += ((each, welcome) for each in acceptors)
        return acceptors[0].port

    def entrance(
        self, name: str, routes: RouteTable, security_protocol: str = PLAINTEXT
    ) -> Callable[[asyncio.Transport, bytes], None]:
        """For connections that somebody else accepts, and reads the first bytes of: to be called with both. Who comes that way is
        served at once, within the same limits."""
        counters = self._listener(name, routes)
        if self._sweep_timer is None:
            self._schedule_sweep()
        return partial(self._take_over, partial(self._new_connection, counters, routes, security_protocol), counters)

    def _listener(self, name: str, routes: RouteTable) -> ListenerCounters:
        counters = ListenerCounters(name, self.times)
        self.counters.append(counters)
        self.tables[routes] = None
        if self._turn.loop_watch.is_on:
            routes.time(self.times)
        return counters

    async def start(self) -> None:
        """Begins to accept on everything that was bound and does not accept yet."""
        for acceptor, welcome in self._acceptors:
            acceptor.start(welcome)
        if self._sweep_timer is None:
            self._schedule_sweep()

    async def stop(self) -> None:
        """Closes the listeners and all connections. Answers already given leave, if their clients take them in a second."""
        self._stopped = True
        for timer in (self._sweep_timer, self._relief_timer):
            if timer is not None:
                timer.cancel()
        self._sweep_timer = self._relief_timer = None
        acceptors, self._acceptors = self._acceptors, []
        for acceptor, _ in acceptors:
            acceptor.close()
        for task in list(self._looking_up):
            task.cancel()
        # Who comes has a transport in a turn or two. To cancel that would take the socket from under a connection that was told of it.
        await asyncio.gather(*self._coming, *self._looking_up, return_exceptions=True)
        for connection in list(self._visitors):
            connection.close()
        if self._admitted:
            self._all_gone = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), _LAST_ANSWERS_SECONDS)
        for connection in list(self._visitors):
            connection.abort()
        self._beside.close()

    # Who comes.

    def _welcome(
        self,
        new_connection: Callable[[], Connection],
        counters: ListenerCounters,
        client: socket.socket,
        address: tuple[str, int],
    ) -> None:
        if not self._turn.loop_watch.is_open:
            self._turn.loop_watch.begin()
        if self._is_refused(counters, address):
            client.close()
        else:
            self._let_in(new_connection(), client, address[0])

    def _is_refused(self, counters: ListenerCounters, address: tuple[str, int]) -> bool:
        """Counts who comes, and says why one may not."""
        host, limits = address[0], self.limits
        counters.accepted += 1
        refusal = self._admission.refusal(host, counters.listener, limits)
        is_full = self._admission.count >= limits.descriptors_of(counters.listener)
        if refusal is None and is_full and not self._make_room():
            refusal = f"clients have their {limits.descriptors_max} descriptors, the others are for logs and peers: raise ulimit -n"
        if refusal is None:
            return False
        counters.refused += 1
        counters.closed += 1
        self._refusals.warn("Closed the connection from %s:%s: %s", host, address[1], refusal)
        return True

    def _take_over(
        self,
        new_connection: Callable[[], Connection],
        counters: ListenerCounters,
        transport: asyncio.Transport,
        first: bytes,
    ) -> None:
        address = transport.get_extra_info("peername")
        if self._stopped or not address or self._is_refused(counters, address):
            transport.abort()
            return
        connection = new_connection()
        self._admission.enter(address[0])
        self._admitted[connection] = address[0]
        transport.pause_reading()  # how a loop reads is decided when it begins to
        transport.set_protocol(connection)
        transport.resume_reading()
        connection.connection_made(transport)
        rest = memoryview(first)
        while rest and not connection.closed:
            room = connection.get_buffer(-1)
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            rest = rest[size:]
            connection.buffer_updated(size)

    def _new_connection(self, counters: ListenerCounters, routes: RouteTable, security_protocol: str) -> Connection:
        connection = Connection(
            routes,
            self._pool,
            self.limits.connection,
            counters.listener,
            on_made=self._made,
            on_lost=self._forget,
            counters=counters,
            turn=self._turn,
            security_protocol=security_protocol,
            beside=self._beside,
        )
        connection.comes_first = counters.listener == self.limits.protected_listener
        return connection

    def _let_in(self, connection: Connection, client: socket.socket, host: str) -> None:
        """Counted from now on: of a crowd, many are accepted before the first has its transport."""
        self._admission.enter(host)
        self._admitted[connection] = host
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(lambda: connection, client))
        self._coming.add(task)
        task.add_done_callback(partial(self._came, connection, client))

    def _came(self, connection: Connection, client: socket.socket, task: "asyncio.Task[Any]") -> None:
        self._coming.discard(task)
        if connection in self._admitted and connection not in self._visitors:  # it never got a transport
            client.close()
            self._forget(connection)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("A client was gone before it was let in: %s", task.exception())

    def _made(self, connection: Connection) -> None:
        self._visitors[connection] = _Visitor(connection)

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
        host = self._admitted.pop(connection, None)
        if host is None:
            return
        self._visitors.pop(connection, None)
        self._admission.leave(host)
        connection.counters.closed += 1
        if self._all_gone is not None and not self._admitted:
            self._all_gone.set()

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
            seconds = max(min(seconds, self.limits.idle_ms_max / 1000 / _SWEEPS_PER_IDLE_TIME), _SWEEP_SECONDS_MIN)
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
            elif connection.in_flight or connection.is_muted:
                visitor.quiet_sweeps = 0  # its silence is our doing: its idle time begins with our answer
            elif 0 <= idle_seconds <= visitor.quiet_sweeps * seconds:
                connection.close()
            else:
                self._quiet.append(connection)
        self._schedule_sweep()
