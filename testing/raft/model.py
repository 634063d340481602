"""The exhaustive model checker: every interleaving of a few events on three production cores, within bounds.

Time is taken out: any armed timer may expire at any moment, any message may arrive at any moment, in any order, or (within
the bounds) twice or never. A node crashes between any two events and loses what it had not synced.

It is fast because a cluster's state is nearly always new while a node's state seldom is: node states are interned, and what
an event does to a node state is computed once by the production core and remembered. A step of the cluster is then a few
dictionary look-ups.
"""

import pickle
from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec

from ottla.quorum.raft.events import (
    Event,
    LogSynced,
    PeerDisconnected,
    RequestReceived,
    ResponseReceived,
    ShutdownRequested,
    Started,
    TimerExpired,
)
from ottla.quorum.raft.messages import Request, Response
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.testing.raft.cluster import endpoint_of
from ottla.testing.raft.memory import MemoryReplica, Outbox, Storage
from ottla.testing.raft.model_invariants import Ghost, ModelInvariants

NODES = (1, 2, 3)

# What only stretches or shortens waiting has no meaning where time does not exist.
TIMING_FIELDS = frozenset(("last_fetch_ms", "last_caught_up_ms", "heard_from", "granting", "deadline_ms"))


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much may happen in a run; all interleavings of it are walked."""

    epoch: int  # nobody campaigns from this epoch on
    campaigns: int = 2  # times that a timer makes a node campaign
    appends: int = 0
    crashes: int = 0
    losses: int = 0
    duplicates: int = 0
    resignations: int = 0  # by check-quorum
    shutdowns: int = 0
    # Where the walk begins: "cold"; "led": node 1 was elected and everyone has heard of it; "appended": then it appended a
    # record, which all have and none has synced.
    start: str = "cold"
    # An answer that nobody waits for changes nothing when it comes; without it the same states are fewer. Kept where late
    # answers are the point.
    keep_late_answers: bool = False
    records_per_fetch: int = 64


class NoRandom(Random):
    """Every draw is the lowest: where time does not exist, jitter means nothing."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start


class Message(NamedTuple):
    """On its way from ``source`` to ``target``; ``response`` None: the request itself."""

    source: int
    target: int
    request: Request
    response: Response | None = None


class ModelNode:
    """One node: its replica (None when it is down), its disk, and the syncs under way."""

    def __init__(self, node_id: int, storage: Storage, replica: MemoryReplica | None) -> None:
        self.id = node_id
        self.storage = storage
        self.replica = replica
        self.syncing: tuple[int, ...] = ()
        self.leaving = False

    def fingerprint(self) -> Any:
        storage = self.storage
        disk = (storage.election, tuple(storage.entries), storage.durable_end)
        if self.replica is None:
            return (self.id, disk)
        state = self.replica.core.state
        volatile = (
            _freeze(state.role),
            state.high_watermark,
            state.log.end,
            state.log.durable_end,
            state.log.epochs,
            tuple(sorted(state.timers)),
            tuple(sorted(state.inflight.items(), key=_inflight_order)),
            tuple(sorted(state.backing_off)),
            tuple((key.id, parked.request) for key, parked in sorted(state.parked.items())),
            state.shutting_down,
        )
        return (self.id, disk, volatile, self.syncing)


def _inflight_order(item: tuple[tuple[int, str], Request]) -> tuple[int, str]:
    return item[0]


def _freeze(value: Any) -> Any:
    """A hashable value that is equal exactly for states that behave alike."""
    if isinstance(value, msgspec.Struct) and value.__struct_config__.frozen:
        return value
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name not in TIMING_FIELDS]
        return (type(value).__name__, *(_freeze(getattr(value, name)) for name in names))
    if isinstance(value, dict):
        return tuple((key, _freeze(value[key])) for key in sorted(value))
    return value


class NodeView(NamedTuple):
    """What the explorer needs to know of an interned node state, without thawing it."""

    up: bool
    leads: bool
    epoch: int
    follows: int | None  # whose stream, if broken, would tell it something
    can_fire: tuple[Timer, ...]
    inflight: tuple[tuple[int, Request], ...]
    parked: tuple[tuple[int, Request], ...]
    syncing: bool


class Step(NamedTuple):
    """What an event did to a node: its new state, and the messages it sent."""

    node: int
    sent: tuple[int, ...]


class Budget(NamedTuple):
    """What is left of the bounds."""

    campaigns: int
    appends: int
    crashes: int
    losses: int
    duplicates: int
    resignations: int
    shutdowns: int


class ClusterState(NamedTuple):
    """Interned node states, the messages under way (sorted), the budget, and what the invariants remember."""

    nodes: tuple[int, int, int]
    net: tuple[int, ...]
    budget: Budget
    ghost: int


class Move(NamedTuple):
    """Something that may happen next: ``action`` to the node at ``at`` (None: a message just vanishes). ``net`` and
    ``budget`` are what is left of them before the node answers."""

    kind: str
    at: int
    action: Any
    net: tuple[int, ...]
    budget: Budget


# How often a random walk prefers each kind of move: most of the time the cluster is let work.
WEIGHTS = {
    "deliver": 12,
    "synced": 12,
    "start": 8,
    "append": 6,
    "failed": 6,
    "timer": 2,
    "broken": 2,
    "deliver twice": 2,
    "crash": 1,
    "crash, unsynced kept": 1,
    "shutdown": 1,
    "lose": 1,
    "lost": 6,
}


class ModelViolation(AssertionError):
    """An invariant does not hold; ``trace`` is a shortest path to it."""

    def __init__(self, story: str, trace: list[str]) -> None:
        super().__init__("\n".join([story, *trace]))
        self.story = story
        self.trace = trace


class ModelChecker:
    """Walks everything that can happen within ``bounds``, breadth first."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.settings = RaftSettings(cluster_id="model")
        self.static = VoterSet.of(Voter(ReplicaKey(node), endpoint_of(node)) for node in NODES)
        self._frozen: list[bytes] = []
        self.views: list[NodeView] = []
        self._node_ids: dict[Any, int] = {}
        self.messages: list[Message] = []
        self._message_ids: dict[Message, int] = {}
        self._steps: dict[tuple[int, Any], Step] = {}
        self.invariants = ModelInvariants()
        self.parents: dict[ClusterState, tuple[ClusterState, Move] | None] = {}
        self.exhausted = False
        self.steps_taken = 0

    # --- exploring ----------------------------------------------------------------------------------------------------

    def run(self, limit: int) -> int:
        """The number of distinct states; ``limit`` stops the walk. Raises ModelViolation with a shortest path."""
        start = self.start()
        self.parents = {start: None}
        queue = deque([start])
        move: Move | None = None
        while queue and len(self.parents) < limit:
            state = queue.popleft()
            try:
                for move in self._moves(state):
                    self.steps_taken += 1
                    successor = self._after(state, move)
                    if successor not in self.parents:
                        self.parents[successor] = (state, move)
                        queue.append(successor)
            except AssertionError as error:
                path = [*self._path_to(state), *([move] if move else [])]
                raise ModelViolation(f"{type(error).__name__}: {error}", self._tell(path)) from error
        self.exhausted = not queue
        return len(self.parents)

    def walk(self, seed: int, walks: int, steps: int) -> int:
        """Random walks instead of all: deep where `run` is broad. The number of moves; raises ModelViolation."""
        rng, taken, start = Random(seed), 0, self.start()
        for _ in range(walks):
            state, path = start, list[Move]()
            try:
                for _ in range(steps):
                    moves = list(self._moves(state))
                    if not moves:
                        break
                    path.append(rng.choices(moves, [WEIGHTS[move.kind] for move in moves])[0])
                    state = self._after(state, path[-1])
                    taken += 1
            except AssertionError as error:
                raise ModelViolation(f"{type(error).__name__}: {error}", self._tell(path)) from error
        return taken

    def start(self) -> ClusterState:
        """Where every walk begins."""
        state = self._initial()
        if self.bounds.start != "cold":
            state = self._led(state)
        if self.bounds.start == "appended":
            state = self._after(state, Move("append", 0, ("append", 1), state.net, state.budget))
            for message_id in state.net:
                rest = tuple(other for other in state.net if other != message_id)
                index = self.messages[message_id].target - 1
                state = self._after(state, Move("deliver", index, message_id, rest, state.budget))
        return state

    def _path_to(self, state: ClusterState) -> list[Move]:
        path: list[Move] = []
        entry = self.parents[state]
        while entry is not None:
            path.append(entry[1])
            entry = self.parents[entry[0]]
        return path[::-1]

    def _tell(self, path: list[Move]) -> list[str]:
        story = []
        for move in path:
            what = self.messages[move.action] if isinstance(move.action, int) else move.action
            story.append(f"node {move.at + 1}: {move.kind} {what}")
        return story

    def _initial(self) -> ClusterState:
        bounds = self.bounds
        budget = Budget(
            bounds.campaigns,
            bounds.appends,
            bounds.crashes,
            bounds.losses,
            bounds.duplicates,
            bounds.resignations,
            bounds.shutdowns,
        )
        nodes: list[int] = []
        net: tuple[int, ...] = ()
        for node_id in NODES:
            down = self._intern(ModelNode(node_id, Storage(self.static), None))
            step = self._step(down, "start")
            nodes.append(step.node)
            net = _with(net, step.sent)
        return ClusterState((nodes[0], nodes[1], nodes[2]), net, budget, self.invariants.initial)

    def _led(self, state: ClusterState) -> ClusterState:
        """Node 1 campaigns in the best of worlds; walks on until only its followers' fetches wait."""
        state = self._after(state, Move("timer", 0, Timer.ELECTION, state.net, state.budget))
        while True:
            syncing = next((index for index in range(3) if self.views[state.nodes[index]].syncing), None)
            if syncing is not None:
                state = self._after(state, Move("synced", syncing, "synced", state.net, state.budget))
            elif state.net:
                message_id, *rest = state.net
                index = self.messages[message_id].target - 1
                state = self._after(state, Move("deliver", index, message_id, tuple(rest), state.budget))
            else:
                return state

    def _moves(self, state: ClusterState) -> Iterator[Move]:
        yield from self._deliveries(state)
        for index in range(3):
            view = self.views[state.nodes[index]]
            if view.up:
                yield from self._node_moves(state, index, view)
                yield from self._failures(state, index, view)
            else:
                yield Move("start", index, "start", state.net, state.budget)

    def _deliveries(self, state: ClusterState) -> Iterator[Move]:
        budget = state.budget
        for position, message_id in enumerate(state.net):
            index = self.messages[message_id].target - 1
            rest = state.net[:position] + state.net[position + 1 :]
            if not self.views[state.nodes[index]].up:
                yield Move("lost", index, None, rest, budget)
                continue
            yield Move("deliver", index, message_id, rest, budget)
            if budget.duplicates:
                yield Move("deliver twice", index, message_id, state.net, _less(budget, "duplicates"))
            if budget.losses:
                yield Move("lose", index, None, rest, _less(budget, "losses"))

    def _node_moves(self, state: ClusterState, index: int, view: NodeView) -> Iterator[Move]:
        net, budget = state.net, state.budget
        if view.syncing:
            yield Move("synced", index, "synced", net, budget)
        for timer in view.can_fire:
            less = self._timer_budget(view, timer, budget)
            if less is not None:
                yield Move("timer", index, timer, net, less)
        if view.leads and budget.appends:
            yield Move("append", index, ("append", budget.appends), net, _less(budget, "appends"))
        if view.leads and budget.shutdowns:
            yield Move("shutdown", index, "shutdown", net, _less(budget, "shutdowns"))
        if budget.crashes:
            yield Move("crash", index, "crash", net, _less(budget, "crashes"))
            if view.syncing:
                yield Move("crash, unsynced kept", index, "crash-kept", net, _less(budget, "crashes"))

    def _timer_budget(self, view: NodeView, timer: Timer, budget: Budget) -> Budget | None:
        """None: the bounds do not let it expire."""
        if timer is Timer.CHECK_QUORUM:
            return _less(budget, "resignations") if budget.resignations else None
        if view.epoch >= self.bounds.epoch or not budget.campaigns:
            return None
        return _less(budget, "campaigns")

    def _failures(self, state: ClusterState, index: int, view: NodeView) -> Iterator[Move]:
        """A request that is nowhere any more fails; a broken stream is seen."""
        for peer, request in view.inflight:
            other = self.views[state.nodes[peer - 1]]
            if (index + 1, request) in other.parked or self._under_way(state, index + 1, peer, request):
                continue
            yield Move("failed", index, ("failed", peer, request), state.net, state.budget)
        if view.follows is not None and not self.views[state.nodes[view.follows - 1]].up:
            yield Move("broken", index, ("broken", view.follows), state.net, state.budget)

    def _under_way(self, state: ClusterState, source: int, target: int, request: Request) -> bool:
        asked = self._message_ids.get(Message(source, target, request))
        if asked in state.net:
            return True
        for message_id in state.net:
            message = self.messages[message_id]
            if message.response is not None and message.target == source and message.request == request:
                return True
        return False

    # --- stepping -----------------------------------------------------------------------------------------------------

    def _after(self, state: ClusterState, move: Move) -> ClusterState:
        """The move, and the invariants on what came of it."""
        if move.action is None:
            return ClusterState(state.nodes, move.net, move.budget, state.ghost)
        index = move.at
        before = state.nodes[index]
        step = self._step(before, move.action)
        net = _with(move.net, step.sent)
        if step.node == before:
            return ClusterState(state.nodes, net, move.budget, state.ghost)
        nodes: tuple[int, int, int] = (*state.nodes[:index], step.node, *state.nodes[index + 1 :])  # type: ignore[assignment]
        ghost = self.invariants.after(nodes, index, before, state.ghost)
        if not self.bounds.keep_late_answers:
            net = self._awaited_only(net, nodes)
        return ClusterState(nodes, net, move.budget, ghost)

    def _awaited_only(self, net: tuple[int, ...], nodes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number for number in net if self._is_awaited(self.messages[number], nodes))

    def _is_awaited(self, message: Message, nodes: tuple[int, ...]) -> bool:
        if message.response is None:
            return True
        return (message.source, message.request) in self.views[nodes[message.target - 1]].inflight

    def _step(self, node_id: int, action: Any) -> Step:
        """What ``action`` does to an interned node state; computed by the production core once."""
        known = self._steps.get((node_id, action))
        if known is None:
            node: ModelNode = pickle.loads(self._frozen[node_id])  # noqa: S301 - what was pickled here
            sent = tuple(self._intern_message(message) for message in self._apply(node, action))
            known = self._steps[node_id, action] = Step(self._intern(node), sent)
        return known

    def _intern(self, node: ModelNode) -> int:
        fingerprint = node.fingerprint()
        number = self._node_ids.get(fingerprint)
        if number is None:
            number = self._node_ids[fingerprint] = len(self._frozen)
            self._frozen.append(pickle.dumps(node, pickle.HIGHEST_PROTOCOL))
            self.views.append(_view(node))
            self.invariants.note(node.storage, node.replica)
        return number

    def _intern_message(self, message: Message) -> int:
        number = self._message_ids.setdefault(message, len(self.messages))
        if number == len(self.messages):
            self.messages.append(message)
        return number

    def _apply(self, node: ModelNode, action: Any) -> list[Message]:
        if action == "start":
            key = ReplicaKey(node.id, bytes([node.id]) * 16)
            node.replica = MemoryReplica(
                self.settings,
                key,
                endpoint_of(node.id),
                NoRandom(0),
                node.storage,
                max_records=self.bounds.records_per_fetch,
            )
            return self._handle(node, Started())
        if action in ("crash", "crash-kept"):
            node.storage.crash(1.0 if action == "crash-kept" else 0.0)
            node.replica = None
            node.syncing = ()
            return []
        return self._handle(node, self._event(node, action))

    def _event(self, node: ModelNode, action: Any) -> Event:
        assert node.replica is not None
        if isinstance(action, Timer):
            return TimerExpired(action)
        if isinstance(action, int):
            message = self.messages[action]
            if message.response is None:
                return RequestReceived(message.request, (message.source, message.request))
            return ResponseReceived(message.source, message.request, message.response)
        if action == "synced":
            end_offset, *later = node.syncing
            node.syncing = tuple(later)
            node.storage.durable_end = max(node.storage.durable_end, min(end_offset, node.storage.end))
            return LogSynced(end_offset)
        if action == "shutdown":
            return ShutdownRequested()
        if action[0] == "append":
            return node.replica.append_event([action[1].to_bytes(8, "big")])
        if action[0] == "broken":
            return PeerDisconnected(action[1])
        return ResponseReceived(action[1], action[2], None)

    def _handle(self, node: ModelNode, event: Event) -> list[Message]:
        """The event, and at once the end of any back-off: waiting means nothing here."""
        assert node.replica is not None
        end_before = node.storage.end
        sent = self._messages(node, node.replica.handle(event, 0))
        if node.storage.end < end_before:
            assert not node.syncing, "the log was cut while a sync was under way: what the sync promises is unclear"
        while Timer.RETRY in node.replica.core.state.timers:
            sent += self._messages(node, node.replica.handle(TimerExpired(Timer.RETRY), 0))
        return sent

    @staticmethod
    def _messages(node: ModelNode, outbox: Outbox) -> list[Message]:
        node.syncing = (*node.syncing, *outbox.syncs)
        requests = [Message(node.id, send.peer, send.request) for send in outbox.requests]
        responses = [Message(node.id, token[0], token[1], response) for token, response in outbox.responses]
        return requests + responses


def _view(node: ModelNode) -> NodeView:
    if node.replica is None:
        return NodeView(False, False, 0, None, (), (), (), False)
    state = node.replica.core.state
    role = state.role
    expiring = (Timer.ELECTION, Timer.FETCH, Timer.CHECK_QUORUM)
    return NodeView(
        up=True,
        leads=isinstance(role, Leader),
        epoch=role.epoch,
        follows=role.leader_id if isinstance(role, Follower) and not role.leader_suspected else None,
        can_fire=tuple(timer for timer in expiring if timer in state.timers),
        inflight=tuple((peer, request) for (peer, _), request in state.inflight.items()),
        parked=tuple((key.id, parked.request) for key, parked in state.parked.items()),
        syncing=bool(node.syncing),
    )


def _less(budget: Budget, name: str) -> Budget:
    return budget._replace(**{name: getattr(budget, name) - 1})


def _with(net: tuple[int, ...], sent: tuple[int, ...]) -> tuple[int, ...]:
    return net if not sent else tuple(sorted({*net, *sent}))


__all__ = ["Bounds", "Ghost", "ModelChecker", "ModelViolation"]
