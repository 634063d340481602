"""What may happen next in a state of the cluster."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.quorum.raft.messages import Request
from ottla.quorum.raft.timers import Timer
from ottla.testing.raft.model.bounds import Bounds, Budget
from ottla.testing.raft.model.node import Message, NodeView
from ottla.testing.raft.model.stepping import Stepper


class ClusterState(NamedTuple):
    """Interned node states, the messages under way (sorted), the budget, and what the invariants remember."""

    nodes: tuple[int, ...]
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
    "add": 3,
    "remove": 1,
    "move": 1,
    "snapshot": 1,
}
"""How often a random walk prefers each kind of move: most of the time the cluster is let work."""

REFUSABLE = ("add", "remove")


class Moves:
    """Enumerates them in an order that depends on the state alone."""

    def __init__(self, bounds: Bounds, stepper: Stepper) -> None:
        self._bounds = bounds
        self._stepper = stepper

    def of(self, state: ClusterState) -> Iterator[Move]:
        yield from self._deliveries(state)
        for index, number in enumerate(state.nodes):
            view = self._stepper.views[number]
            if view.up:
                yield from self._node_moves(state, index, view)
                yield from self._reshapings(state, index, view)
                yield from self._failures(state, index, view)
            else:
                yield Move("start", index, "start", state.net, state.budget)

    def _deliveries(self, state: ClusterState) -> Iterator[Move]:
        budget, stepper = state.budget, self._stepper
        for position, message_id in enumerate(state.net):
            index = stepper.messages[message_id].target - 1
            rest = state.net[:position] + state.net[position + 1 :]
            if not stepper.views[state.nodes[index]].up:
                yield Move("lost", index, None, rest, budget)
                continue
            yield Move("deliver", index, message_id, rest, budget)
            if budget.duplicates:
                yield Move("deliver twice", index, message_id, state.net, budget.less("duplicates"))
            if budget.losses:
                yield Move("lose", index, None, rest, budget.less("losses"))

    def _node_moves(self, state: ClusterState, index: int, view: NodeView) -> Iterator[Move]:
        net, budget = state.net, state.budget
        if view.syncing:
            yield Move("synced", index, "synced", net, budget)
        for timer in view.can_fire:
            less = self._timer_budget(view, timer, budget)
            if less is not None:
                yield Move("timer", index, timer, net, less)
        if view.leads and budget.appends:
            yield Move("append", index, ("append", budget.appends), net, budget.less("appends"))
        if view.leads and budget.shutdowns:
            yield Move("shutdown", index, "shutdown", net, budget.less("shutdowns"))
        if budget.crashes:
            yield Move("crash", index, "crash", net, budget.less("crashes"))
            if view.syncing:
                yield Move("crash, unsynced kept", index, "crash-kept", net, budget.less("crashes"))

    def _timer_budget(self, view: NodeView, timer: Timer, budget: Budget) -> Budget | None:
        """None: the bounds do not let it expire."""
        if timer is Timer.CHECK_QUORUM:
            return budget.less("resignations") if budget.resignations else None
        if timer is Timer.UPDATE_VOTER:
            return budget if self._bounds.moves else None
        if timer is Timer.HAND_OVER:
            return budget
        if view.epoch >= self._bounds.epoch or not budget.campaigns:
            return None
        return budget.less("campaigns")

    def _reshapings(self, state: ClusterState, index: int, view: NodeView) -> Iterator[Move]:
        net, budget = state.net, state.budget
        if view.leads and budget.adds:
            for node in range(1, len(state.nodes) + 1):
                if node not in view.voters:
                    yield Move("add", index, ("add", node), net, budget.less("adds"))
        if view.leads and budget.removes:
            for node in view.voters:
                yield Move("remove", index, ("remove", node), net, budget.less("removes"))
        if view.has_news and budget.snapshots:
            yield Move("snapshot", index, "snapshot", net, budget.less("snapshots"))
        if budget.moves:
            yield Move("move", index, "move", net, budget.less("moves"))

    def _failures(self, state: ClusterState, index: int, view: NodeView) -> Iterator[Move]:
        """A request that is nowhere any more fails; a broken stream is seen."""
        views = self._stepper.views
        for peer, request in view.inflight:
            other = views[state.nodes[peer - 1]]
            if (index + 1, request) in other.parked or self._under_way(state, index + 1, peer, request):
                continue
            yield Move("failed", index, ("failed", peer, request), state.net, state.budget)
        if view.follows is not None and not views[state.nodes[view.follows - 1]].up:
            yield Move("broken", index, ("broken", view.follows), state.net, state.budget)

    def _under_way(self, state: ClusterState, source: int, target: int, request: Request) -> bool:
        asked = self._stepper.message_id(Message(source, target, request))
        if asked in state.net:
            return True
        for message_id in state.net:
            message = self._stepper.messages[message_id]
            if message.response is not None and message.target == source and message.request == request:
                return True
        return False
