"""The simulated quorum: an event queue, a message router with faults, disks with slow syncs, clocks that drift.

One thread, one seeded generator: the same seed and faults give the same run. Virtual time is in microseconds.
"""

import heapq
from collections import deque
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
    ShutdownRequested,
    Started,
    Ticked,
)
from ottla.quorum.raft.instructions import SendRequest
from ottla.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest, Request, Response
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.testing.raft.faults import FaultEvent, FaultKind
from ottla.testing.raft.invariants import Invariants, InvariantViolation
from ottla.testing.raft.memory import MemoryReplica, Storage

CLUSTER_ID = "simulated"
ADMINISTRATOR = "administrator"


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How bad the network and the disks are; probabilities in [0, 1], times in microseconds."""

    latency_us: tuple[int, int] = (100, 1500)
    straggle: float = 0.02  # a message takes straggle_us
    straggle_us: tuple[int, int] = (5_000, 300_000)
    loss: float = 0.01
    duplication: float = 0.02
    sync_us: tuple[int, int] = (50, 2000)
    slow_sync_us: tuple[int, int] = (20_000, 800_000)
    clock_rate: tuple[float, float] = (0.9, 1.1)
    request_timeout_ms: int = 2000


FAIR = Weather(straggle=0.0, loss=0.0, duplication=0.0, clock_rate=(1.0, 1.0))


class Node:
    """A node's disk, and while it runs its replica. ``life`` counts its starts: messages to an earlier life get lost."""

    def __init__(self, node_id: int, storage: Storage, clock_rate: float) -> None:
        self.id = node_id
        self.storage = storage
        self.clock_rate = clock_rate
        self.replica: MemoryReplica | None = None
        self.life = 0
        self.slow_disk = False
        self.truncations = 0
        self.next_tick_us = -1
        self.synced_at_us = 0  # syncs end in order
        self.asked: dict[tuple[int, type[Request]], SendRequest] = {}

    def is_superseded(self, asked: SendRequest) -> bool:
        """Whether the same question was asked again in the same words: a transport does not confuse the two answers."""
        latest = self.asked.get((asked.peer, type(asked.request)))
        return latest is not asked and latest is not None and latest.request == asked.request


class RaftCluster:
    """Runs production cores. Every event is followed by the invariants."""

    def __init__(
        self,
        seed: int,
        voters: int = 3,
        observers: int = 0,
        spares: int = 0,
        *,
        weather: Weather | None = None,
        settings: RaftSettings | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.weather = weather or Weather()
        self.settings = settings or RaftSettings(cluster_id=CLUSTER_ID)
        self.observer_settings = msgspec.structs.replace(self.settings, can_vote=False, fetch_from_any_voter=True)
        self.now_us = 0
        self.events = 0
        self.invariants = Invariants()
        self.static = VoterSet.of(Voter(ReplicaKey(node), endpoint_of(node)) for node in range(1, voters + 1))
        self.nodes: dict[int, Node] = {}
        self.controllers = [*range(1, voters + 1), *range(voters + observers + 1, voters + observers + spares + 1)]
        for node in range(1, voters + observers + spares + 1):
            low, high = self.weather.clock_rate
            self.nodes[node] = Node(node, Storage(self.static), self.rng.uniform(low, high))
        self.muted: dict[int, bool] = {}
        self.deafened: dict[int, bool] = {}
        self.history: deque[str] = deque(maxlen=400)
        self.appended = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

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
        self.run_until(lambda: False, duration_ms)

    def _step(self) -> None:
        self.now_us, _, action, arguments = heapq.heappop(self._queue)
        self.events += 1
        action(*arguments)

    def note(self, text: str) -> None:
        self.history.append(f"{self.now_us / 1000:10.3f} {text}")

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        for node in self.nodes.values():
            self.start(node)

    def start(self, node: Node) -> None:
        if node.replica is not None:
            return
        node.life += 1
        key, rng = key_of(node.id), Random(self.rng.getrandbits(64))
        settings = self.settings if node.id in self.controllers else self.observer_settings
        node.replica = MemoryReplica(settings, key, endpoint_of(node.id), rng, node.storage)
        self.note(f"node {node.id} starts")
        self.deliver(node, node.life, Started())

    def stop(self, node: Node, *, silently: bool) -> None:
        """The process is gone between two instructions; unsynced records go with it, or some stay."""
        if node.replica is None:
            return
        node.replica = None
        node.storage.crash(self.rng.choice((0.0, 0.5, 1.0)))
        self.invariants.forget_running(node.id)
        self.note(f"node {node.id} stops at {node.storage.end}")
        if not silently:
            for other in self.nodes.values():
                if other is not node and self._passes(node.id, other.id):
                    self.at(self._latency(), self.deliver, other, other.life, PeerDisconnected(node.id))

    def now_ms(self, node: Node) -> int:
        return int(self.now_us * node.clock_rate) // 1000

    def deliver(self, node: Node, life: int, event: Event) -> None:
        """One event for one replica, then the invariants, then what it wants."""
        replica = node.replica
        if replica is None or life != node.life:
            return
        truncation_mark = node.storage.end
        outbox = replica.handle(event, self.now_ms(node))
        if node.storage.end < truncation_mark:
            node.truncations += 1
        self._describe(node, event)
        self.invariants.check(node.id, replica, {other.id: other.storage for other in self.nodes.values()})
        for request in outbox.requests:
            self._send(node, request)
        for token, response in outbox.responses:
            self._respond(node, token, response)
        for end_offset in outbox.syncs:
            low, high = self.weather.slow_sync_us if node.slow_disk else self.weather.sync_us
            node.synced_at_us = max(node.synced_at_us, self.now_us + self.rng.randrange(low, high))
            self.at(node.synced_at_us - self.now_us, self._synced, node, node.life, node.truncations, end_offset)
        for following in outbox.events:
            self.deliver(node, life, following)
        self._plan_tick(node)

    def _describe(self, node: Node, event: Event) -> None:
        assert node.replica is not None
        if isinstance(event, Ticked):
            return
        state = node.replica.core.state
        role = f"{type(state.role).__name__}({state.epoch})"
        self.note(f"n{node.id} {role} end={state.log.end}/{state.log.durable_end} hw={state.high_watermark} <- {event}")

    def _plan_tick(self, node: Node) -> None:
        assert node.replica is not None
        deadline = node.replica.core.next_deadline_ms()
        if deadline is None:
            return
        due_us = max(int((deadline + 1) * 1000 / node.clock_rate), self.now_us)
        if not self.now_us < node.next_tick_us <= due_us:
            node.next_tick_us = due_us
            self.at(due_us - self.now_us, self._tick, node, node.life, due_us)

    def _tick(self, node: Node, life: int, due_us: int) -> None:
        if node.life == life and node.next_tick_us == due_us:
            node.next_tick_us = -1
        self.deliver(node, life, Ticked())

    def _synced(self, node: Node, life: int, truncations: int, end_offset: int) -> None:
        if node.replica is None or node.life != life:
            return
        if truncations == node.truncations:
            node.storage.durable_end = max(node.storage.durable_end, min(end_offset, node.storage.end))
        self.deliver(node, life, LogSynced(end_offset))

    # --- network ------------------------------------------------------------------------------------------------------

    def _latency(self) -> int:
        straggles = self.rng.random() < self.weather.straggle
        return self.rng.randrange(*(self.weather.straggle_us if straggles else self.weather.latency_us))

    def _passes(self, source: int, target: int) -> bool:
        return source not in self.muted and target not in self.deafened

    def _copies(self) -> int:
        if self.rng.random() < self.weather.loss:
            return 0
        return 2 if self.rng.random() < self.weather.duplication else 1

    def _send(self, node: Node, send: SendRequest) -> None:
        target = self.nodes[send.peer]
        node.asked[send.peer, type(send.request)] = send
        self.at(self.weather.request_timeout_ms * 1000, self._answer, node, node.life, send, None)
        for _ in range(self._copies()):
            self.at(self._latency(), self._arrive, node, node.life, target, send)

    def _answer(self, node: Node, life: int, asked: SendRequest, response: Response | None) -> None:
        if not node.is_superseded(asked):
            self.deliver(node, life, ResponseReceived(asked.peer, asked.request, response))

    def _arrive(self, source: Node, life: int, target: Node, asked: SendRequest) -> None:
        if not self._passes(source.id, target.id):
            return
        if target.replica is None:
            if self._passes(target.id, source.id):
                self.at(self._latency(), self._refuse, source, life, asked)
            return
        self.deliver(target, target.life, RequestReceived(asked.request, (source.id, life, asked)))

    def _refuse(self, source: Node, life: int, asked: SendRequest) -> None:
        self.deliver(source, life, PeerDisconnected(asked.peer))
        self._answer(source, life, asked, None)

    def _respond(self, node: Node, token: Any, response: Response) -> None:
        if token == ADMINISTRATOR:
            self.note(f"administrator is told {response}")
            return
        source_id, life, asked = token
        for _ in range(self._copies()):
            self.at(self._latency(), self._return, self.nodes[source_id], life, asked, response)

    def _return(self, source: Node, life: int, asked: SendRequest, response: Response) -> None:
        if self._passes(asked.peer, source.id):
            self._answer(source, life, asked, response)

    # --- the application ----------------------------------------------------------------------------------------------

    def leader(self) -> Node | None:
        """The running leader of the highest epoch."""
        leading = [
            node for node in self.nodes.values() if node.replica and isinstance(node.replica.core.state.role, Leader)
        ]
        return max(leading, key=lambda node: node.replica.core.state.epoch if node.replica else -1, default=None)

    def append(self, count: int = 1) -> bool:
        """To every node that believes it leads (an old leader does not know better). False if none."""
        taken = False
        for node in self.nodes.values():
            if node.replica is not None and isinstance(node.replica.core.state.role, Leader):
                payloads = []
                for _ in range(count):
                    self.appended += 1
                    payloads.append(self.appended.to_bytes(8, "big"))
                self.deliver(node, node.life, node.replica.append_event(payloads))
                taken = True
        return taken

    def keep_appending(self, every_us: int, until_ms: int) -> None:
        if self.now_us < until_ms * 1000:
            self.append(1 + self.rng.randrange(3))
            self.at(1 + self.rng.randrange(2 * every_us), self.keep_appending, every_us, until_ms)

    # --- faults -------------------------------------------------------------------------------------------------------

    def plan(self, faults: Sequence[FaultEvent]) -> None:
        for fault in faults:
            self.at(max(0, fault.at_ms * 1000 - self.now_us), self.inflict, fault)

    def inflict(self, fault: FaultEvent) -> None:
        node = self.nodes.get(fault.node)
        self.note(f"fault {fault.kind} {fault.node}")
        if node is None or fault.kind is FaultKind.HEAL:
            self.muted.clear()
            self.deafened.clear()
        elif fault.kind in (FaultKind.CRASH, FaultKind.POWER_OFF):
            self.stop(node, silently=fault.kind is FaultKind.POWER_OFF)
        elif fault.kind is FaultKind.RESTART:
            self.start(node)
        elif fault.kind is FaultKind.SHUTDOWN:
            self.deliver(node, node.life, ShutdownRequested())
            self.at(20_000, self._finish_shutdown, node, node.life)
        elif fault.kind in (FaultKind.SLOW_DISK, FaultKind.FAST_DISK):
            node.slow_disk = fault.kind is FaultKind.SLOW_DISK
        elif fault.kind is FaultKind.SNAPSHOT:
            self._take_snapshot(node)
        elif fault.kind in (FaultKind.ADD_VOTER, FaultKind.REMOVE_VOTER):
            self._change_voters(fault)
        else:
            self._cut(fault)

    def _take_snapshot(self, node: Node) -> None:
        event = node.replica.snapshot_event() if node.replica is not None else None
        if event is not None:
            self.deliver(node, node.life, event)

    def _change_voters(self, change: FaultEvent) -> None:
        """Asks whoever leads; what cannot be done now is refused."""
        leader = self.leader()
        if leader is None:
            return
        key = key_of(change.node)
        fields: dict[str, Any] = {"cluster_id": self.settings.cluster_id, "epoch": 0, "sender": ReplicaKey(-1)}
        request: Request = RemoveVoterRequest(voter=key, **fields)
        if change.kind is FaultKind.ADD_VOTER:
            request = AddVoterRequest(voter=key, endpoint=endpoint_of(change.node), **fields)
        self.deliver(leader, leader.life, RequestReceived(request, ADMINISTRATOR))

    def _finish_shutdown(self, node: Node, life: int) -> None:
        if node.life == life:
            self.stop(node, silently=False)

    def _cut(self, fault: FaultEvent) -> None:
        if fault.kind in (FaultKind.ISOLATE, FaultKind.MUTE):
            self.muted[fault.node] = True
        if fault.kind in (FaultKind.ISOLATE, FaultKind.DEAFEN):
            self.deafened[fault.node] = True

    def heal_everything(self) -> None:
        self.weather = FAIR
        self.muted.clear()
        self.deafened.clear()
        for node in self.nodes.values():
            node.slow_disk = False
            self.start(node)

    def check_liveness(self) -> None:
        """When faults end: a leader within three election timeouts, and what is appended then commits everywhere."""
        timeout_ms = 2 * self.settings.election_timeout_ms
        wait_ms = 3 * timeout_ms + self.settings.fetch_timeout_ms
        self._require(lambda: self.leader() is not None and self._agreed(), wait_ms, "a leader everyone follows")
        before = len(self.invariants.committed)
        self.keep_appending(50_000, self.now_us // 1000 + wait_ms)
        self._require(lambda: len(self.invariants.committed) > before, wait_ms, "a commit")
        self.run(wait_ms)
        self._require(self._all_applied, wait_ms, "every node applies what is committed")

    def _require(self, condition: Callable[[], bool], limit_ms: int, what: str) -> None:
        if not self.run_until(condition, limit_ms):
            raise InvariantViolation("liveness", f"no {what} within {limit_ms} ms of fair weather")

    def _agreed(self) -> bool:
        leader = self.leader()
        assert leader is not None
        running = {node.id: node.replica.core.state for node in self.nodes.values() if node.replica}
        epoch = running[leader.id].epoch
        return all(state.known_leader_id == leader.id and state.epoch == epoch for state in running.values())

    def _all_applied(self) -> bool:
        total = len(self.invariants.committed)
        return all(
            node.replica is not None and node.replica.core.state.high_watermark == total for node in self.nodes.values()
        )


def key_of(node: int) -> ReplicaKey:
    return ReplicaKey(node, bytes([node]) * 16)


def endpoint_of(node: int) -> Endpoint:
    return Endpoint(f"node-{node}", 9000 + node)
