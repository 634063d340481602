"""The simulated quorum: an event queue, a message router with faults, disks with slow syncs, clocks that drift.

One thread, one seeded generator: the same seed and faults give the same run. Virtual time is in microseconds.
"""

import heapq
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from ottla.quorum.raft.events import (
    Event,
    LogSynced,
    PeerDisconnected,
    RequestReceived,
    ResponseReceived,
    Started,
    Ticked,
)
from ottla.quorum.raft.instructions import SendRequest
from ottla.quorum.raft.messages import Request, Response
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.testing.raft.clock import DriftingClock
from ottla.testing.raft.disk import FaultyDisk
from ottla.testing.raft.faults import FaultEvent
from ottla.testing.raft.history import History
from ottla.testing.raft.inflicting import inflict
from ottla.testing.raft.invariants import Invariants
from ottla.testing.raft.memory import MemoryReplica, Outbox, Storage
from ottla.testing.raft.network import FAIR, Network, Weather
from ottla.testing.raft.promises import Append, Promises, Token

CLUSTER_ID = "simulated"
ADMINISTRATOR = 0


class Asked(msgspec.Struct, eq=False):
    """A question on its way, and whether the transport has told its asker how it ended."""

    send: SendRequest
    ended: bool = False


class Node:
    """A node's disk and clock, and while it runs its replica. ``life`` counts its starts: messages to an earlier one get lost."""

    def __init__(self, node_id: int, disk: FaultyDisk, clock: DriftingClock) -> None:
        self.id = node_id
        self.key = key_of(node_id)
        self.wipes = 0
        self.endpoint = endpoint_of(node_id)
        self.disk = disk
        self.clock = clock
        self.replica: MemoryReplica | None = None
        self.life = 0
        self.slow_disk = False
        self.held: list[Event] | None = None  # while it is paused: what happens to it then
        self.dies_after: int | None = None  # so many instructions of the next event that has more
        self.next_tick_us = -1
        self.synced_at_us = 0  # syncs end in order
        self.asked: dict[tuple[int, type[Request]], Asked] = {}


class RaftCluster:
    """Runs production cores. Every event is followed by the invariants."""

    def __init__(
        self,
        seed: int,
        voters: int = 3,
        observers: int = 0,
        spares: int = 0,
        *,
        formatted: bool = False,
        records_per_fetch: int = 64,
        weather: Weather | None = None,
        settings: RaftSettings | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.settings = settings or RaftSettings(cluster_id=CLUSTER_ID)
        self.observer_settings = msgspec.structs.replace(self.settings, can_vote=False, fetch_from_any_voter=True)
        self.now_us = 0
        self.is_fair = False  # the faults are over
        self.lost: int | None = None  # a node that does not come back when they are
        self.events = 0
        self.invariants = Invariants()
        self.promises = Promises()
        self.formatted = formatted
        self.records_per_fetch = records_per_fetch
        self.static = VoterSet.of(
            Voter(key_of(node) if formatted else ReplicaKey(node), endpoint_of(node)) for node in range(1, voters + 1)
        )
        total = voters + observers + spares
        self.controllers = [*range(1, voters + 1), *range(voters + observers + 1, total + 1)]
        self.network = Network(self.rng, weather or Weather(), range(1, total + 1))
        low, high = self.network.weather.clock_rate
        self.nodes = {
            node: Node(node, self._first_disk(node), DriftingClock(self.rng.uniform(low, high)))
            for node in range(1, total + 1)
        }
        self.disks = dict[ReplicaKey, Storage]()
        for node in self.nodes.values():
            self._connect(node)
        self.wiped_at_us = -1
        self.history = History()
        self.appended = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def _first_disk(self, node: int) -> FaultyDisk:
        """Static voters stand in everyone's configuration; a formatted quorum is known to its first voters only."""
        known = not self.formatted or self.static.get(node) is not None
        return FaultyDisk(self.static if known else VoterSet())

    def _connect(self, node: Node) -> None:
        self.disks[node.key] = self.disks[ReplicaKey(node.id)] = node.disk

    # --- running ------------------------------------------------------------------------------------------------------

    def at(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_us + delay_us, self._sequence, action, arguments))

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Runs until the condition holds; False when ``limit_ms`` of virtual time passed before."""
        limit_us = self.now_us + limit_ms * 1000
        while not condition():
            if not self._queue or self._queue[0][0] > limit_us:
                self.now_us = limit_us
                return condition()
            self._step()
        return True

    def run(self, duration_ms: int) -> None:
        limit_us = self.now_us + duration_ms * 1000
        while self._queue and self._queue[0][0] <= limit_us:
            self._step()
        self.now_us = limit_us

    def _step(self) -> None:
        self.now_us, _, action, arguments = heapq.heappop(self._queue)
        action(*arguments)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        for node in self.nodes.values():
            self.start(node)

    def start(self, node: Node) -> None:
        if node.replica is not None:
            return
        node.life += 1
        node.disk.recover()
        rng = Random(self.rng.getrandbits(64))
        settings = self.settings if node.id in self.controllers else self.observer_settings
        node.replica = MemoryReplica(
            settings, node.key, node.endpoint, rng, node.disk, max_records=self.records_per_fetch
        )
        self.history.note(self.now_us, f"node {node.id} starts")
        self.deliver(node, node.life, Started())

    def stop(self, node: Node, *, silently: bool) -> None:
        """The process is gone, or silently the whole machine."""
        if node.replica is None:
            return
        node.replica = None
        node.dies_after, node.held = None, None
        node.disk.lose(self.rng, power=silently)
        self.invariants.forget_running(node.id)
        self.promises.process_died(node.id)
        self.history.note(self.now_us, f"node {node.id} stops at {node.disk.end}")
        if not silently:
            self._break_streams(node)

    def wipe(self, node: Node, voters: VoterSet) -> None:
        """Down, and its disk is another: it was formatted with ``voters``."""
        self.stop(node, silently=True)
        node.wipes += 1
        node.key = key_of(node.id, node.wipes)
        node.disk = FaultyDisk(voters)
        self._connect(node)
        self.invariants.forget_disk(node.id)
        self.wiped_at_us = self.now_us

    def _break_streams(self, node: Node) -> None:
        for other in self.nodes.values():
            if other is not node and self.network.passes(node.id, other.id):
                self.at(self.network.latency_us(), self.deliver, other, other.life, PeerDisconnected(node.id))

    def deliver(self, node: Node, life: int, event: Event) -> None:
        """One event for one replica, then the invariants, then what it wants."""
        replica = node.replica
        if replica is None or life != node.life:
            return
        if node.held is not None:
            node.held.append(event)
            return
        self.events += 1
        now_ms = node.clock.now_ms(self.now_us)
        outbox = replica.handle(event, now_ms, node.dies_after)
        self.history.event(self.now_us, node.id, replica.core.state, event)
        if replica.interrupted:
            self.invariants.note_commits(node.id, node.disk, outbox.told)
            self._emit(node, outbox)
            self.stop(node, silently=False)
            return
        self.invariants.check(node.id, replica, self.disks)
        for news in outbox.told:
            self.promises.told(node.id, news, self.invariants.committed)
        self._emit(node, outbox)
        for following in outbox.events:
            self.deliver(node, life, following)
        self._plan_tick(node, replica, now_ms)

    def _emit(self, node: Node, outbox: Outbox) -> None:
        """What left the replica leaves the node."""
        for request in outbox.requests:
            self._send(node, request)
        for token, response in outbox.responses:
            self._respond(node, token, response)
        for end_offset in outbox.syncs:
            weather = self.network.weather
            low, high = weather.slow_sync_us if node.slow_disk else weather.sync_us
            ends_us = self.now_us + low + int(self.rng.random() * (high - low))
            node.synced_at_us = max(node.synced_at_us, ends_us)
            self.at(node.synced_at_us - self.now_us, self._synced, node, node.life, node.disk.truncations, end_offset)

    def _plan_tick(self, node: Node, replica: MemoryReplica, now_ms: int) -> None:
        deadline = replica.core.next_deadline_ms()
        if deadline is None:
            return
        due_us = self.now_us if deadline <= now_ms else max(node.clock.true_us(deadline), self.now_us)
        if not self.now_us < node.next_tick_us <= due_us:
            node.next_tick_us = due_us
            self.at(due_us - self.now_us, self._tick, node, node.life, due_us)

    def _tick(self, node: Node, life: int, due_us: int) -> None:
        if node.life == life and node.next_tick_us == due_us:
            node.next_tick_us = -1
            self.deliver(node, life, Ticked())

    def _synced(self, node: Node, life: int, truncations: int, end_offset: int) -> None:
        if node.replica is not None and node.life == life:
            node.disk.synced(end_offset, truncations)
            self.deliver(node, life, LogSynced(end_offset))

    # --- messages -----------------------------------------------------------------------------------------------------

    def _send(self, node: Node, send: SendRequest) -> None:
        """Asked again in the same words, only the last asking is answered: so the shell does it."""
        asked = Asked(send)
        node.asked[send.peer, type(send.request)] = asked
        self.at(self.network.weather.request_timeout_ms * 1000, self._time_out, node, node.life, asked)
        for _ in range(self.network.copies()):
            self.at(self.network.latency_us(), self._arrive, node, node.life, asked)

    def _time_out(self, node: Node, life: int, asked: Asked) -> None:
        if not asked.ended:
            self._answer(node, life, asked, None)

    def _answer(self, node: Node, life: int, asked: Asked, response: Response | None) -> None:
        """Late and repeated answers reach the core too: it is what must not be misled by them."""
        asked.ended = True
        send = asked.send
        latest = node.asked.get((send.peer, type(send.request)))
        if latest is asked or latest is None or latest.send.request != send.request:
            self.deliver(node, life, ResponseReceived(send.peer, send.request, response))

    def _arrive(self, source: Node, life: int, asked: Asked) -> None:
        """Peers are known by where they listen: of a bootstrap server nothing else is known."""
        target = next((node for node in self.nodes.values() if node.endpoint == asked.send.endpoint), None)
        if target is not None and not self.network.passes(source.id, target.id):
            return
        if target is None or target.replica is None:
            if target is None or self.network.passes(target.id, source.id):
                self.at(self.network.latency_us(), self._refuse, source, life, asked)
            return
        self._receive(target, asked.send.request, source.id, life, asked)

    def _receive(self, target: Node, request: Request, source: int, life: int, asked: Asked | None) -> None:
        token = self.promises.arrived(self.now_us, target.id, source, life, asked, request)
        self.deliver(target, target.life, RequestReceived(request, token))

    def _refuse(self, source: Node, life: int, asked: Asked) -> None:
        self.deliver(source, life, PeerDisconnected(asked.send.peer))
        self._answer(source, life, asked, None)

    def _respond(self, node: Node, token: Token, response: Response) -> None:
        if node.replica is not None:
            self.promises.answered(token, response, node.replica.core.state)
        if token.source == ADMINISTRATOR:
            self.history.note(self.now_us, f"administrator is told {response}")
            return
        source = self.nodes[token.source]
        for _ in range(self.network.copies()):
            self.at(self.network.latency_us(), self._return, node.id, source, token, response)

    def _return(self, answerer: int, source: Node, token: Token, response: Response) -> None:
        if self.network.passes(answerer, source.id):
            self._answer(source, token.life, token.asked, response)

    # --- the application ----------------------------------------------------------------------------------------------

    def leader(self) -> Node | None:
        """The running leader of the highest epoch."""
        leading = [
            (node.replica.core.state.epoch, node)
            for node in self.nodes.values()
            if node.replica and isinstance(node.replica.core.state.role, Leader)
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def append(self, count: int = 1) -> bool:
        """To every node that believes it leads (an old leader does not know better). False if none."""
        taken = False
        for node in self.nodes.values():
            if node.replica is not None and node.held is None and isinstance(node.replica.core.state.role, Leader):
                self._append(node, node.replica, count)
                taken = True
        return taken

    def _append(self, node: Node, replica: MemoryReplica, count: int) -> None:
        numbers = range(self.appended + 1, self.appended + count + 1)
        self.appended += count
        payloads = tuple(number.to_bytes(8, "big") for number in numbers)
        state = replica.core.state
        self.promises.appended(node.id, Append(self.now_us, state.epoch, state.log.end, payloads))
        self.deliver(node, node.life, replica.append_event(payloads))

    def keep_appending(self, every_us: int, until_ms: int) -> None:
        if self.now_us < until_ms * 1000:
            self.append(1 + self.rng.randrange(3))
            self.at(1 + self.rng.randrange(2 * every_us), self.keep_appending, every_us, until_ms)

    def administer(self, leader: Node, request: Request) -> None:
        """What cannot be done now is refused."""
        self._receive(leader, request, ADMINISTRATOR, 0, None)

    # --- faults -------------------------------------------------------------------------------------------------------

    def plan(self, faults: Sequence[FaultEvent]) -> None:
        for fault in faults:
            self.at(max(0, fault.at_ms * 1000 - self.now_us), self.inflict, fault)

    def inflict(self, fault: FaultEvent) -> None:
        self.history.note(self.now_us, str(fault))
        inflict(self, fault)

    def pause(self, node: Node, duration_us: int) -> None:
        """What happens to it meanwhile waits."""
        if node.replica is not None and node.held is None:
            node.held = []
            self.at(duration_us, self.resume, node, node.life)

    def resume(self, node: Node, life: int) -> None:
        if node.life == life and node.held is not None:
            held, node.held = node.held, None
            for event in held:
                self.deliver(node, life, event)

    def turn_clock(self, node: Node, *, rate: float | None = None, jump_us: int = 0) -> None:
        """A timer that is due because of it fires now."""
        if rate is not None:
            node.clock.run_at(self.now_us, rate)
        node.clock.jump(jump_us)
        node.next_tick_us = -1
        if node.replica is not None:
            self._plan_tick(node, node.replica, node.clock.now_ms(self.now_us))

    def reset_streams(self, node: Node) -> None:
        self._break_streams(node)
        for other in self.nodes:
            if other != node.id:
                self.deliver(node, node.life, PeerDisconnected(other))

    def heal_everything(self) -> None:
        """Good weather from here on; clocks go on as they usually do."""
        self.is_fair, self.network.weather = True, FAIR
        self.network.heal()
        for node in self.left():
            node.slow_disk, node.dies_after = False, None
            self.resume(node, node.life)
            self.turn_clock(node, rate=node.clock.usual_rate)
            self.start(node)

    def left(self) -> list[Node]:
        """The nodes that are not lost for good."""
        return [node for node in self.nodes.values() if node.id != self.lost]


def key_of(node: int, wipes: int = 0) -> ReplicaKey:
    return ReplicaKey(node, bytes([node]) * 15 + bytes([node + 100 * wipes & 0xFF]))


def endpoint_of(node: int) -> Endpoint:
    return Endpoint(f"node-{node}", 9000 + node)
