"""The walk itself: breadth first over everything, or deep and at random."""

from collections import deque
from random import Random

from ottla.quorum.raft.timers import Timer
from ottla.testing.raft.model.bounds import Bounds, Budget
from ottla.testing.raft.model.invariants import ModelInvariants
from ottla.testing.raft.model.moves import REFUSABLE, WEIGHTS, ClusterState, Move, Moves
from ottla.testing.raft.model.node import Message
from ottla.testing.raft.model.stepping import Stepper


class ModelViolation(AssertionError):
    """An invariant does not hold; ``trace`` is a shortest path to it."""

    def __init__(self, story: str, trace: list[str]) -> None:
        super().__init__("\n".join([story, *trace]))
        self.story = story
        self.trace = trace


class ModelChecker:
    """Walks everything that can happen within ``bounds``."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.invariants = ModelInvariants(with_voters=not bounds.snapshots)
        self.stepper = Stepper(bounds, self.invariants.note)
        self.moves = Moves(bounds, self.stepper)
        self.parents: dict[ClusterState, tuple[ClusterState, Move] | None] = {}
        self.exhausted = False
        self.steps_taken = 0

    def run(self, limit: int) -> int:
        """The number of distinct states, breadth first; ``limit`` stops the walk. Raises ModelViolation with a shortest path."""
        start = self.start()
        self.parents = {start: None}
        queue = deque([start])
        move: Move | None = None
        while queue and len(self.parents) < limit:
            state = queue.popleft()
            try:
                for move in self.moves.of(state):
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
                    moves = list(self.moves.of(state))
                    if not moves:
                        break
                    path.append(rng.choices(moves, [WEIGHTS[move.kind] for move in moves])[0])
                    state = self._after(state, path[-1])
                    taken += 1
            except AssertionError as error:
                raise ModelViolation(f"{type(error).__name__}: {error}", self._tell(path)) from error
        return taken

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
            what = self.stepper.messages[move.action] if isinstance(move.action, int) else move.action
            story.append(f"node {move.at + 1}: {move.kind} {what}")
        return story

    # --- where a walk begins ------------------------------------------------------------------------------------------

    def start(self) -> ClusterState:
        state = self._initial()
        if self.bounds.start == "cold":
            return state
        state = self._settled(self._after(state, Move("timer", 0, Timer.ELECTION, state.net, state.budget)))
        if self.bounds.start == "led":
            return state
        state = self._after(state, Move("append", 0, ("append", 1), state.net, state.budget))
        if self.bounds.start == "lagging":
            return self._settled(state, without=3)
        for message_id in state.net:
            rest = tuple(other for other in state.net if other != message_id)
            index = self.stepper.messages[message_id].target - 1
            state = self._after(state, Move("deliver", index, message_id, rest, state.budget))
        return state

    def _initial(self) -> ClusterState:
        nodes: list[int] = []
        net: tuple[int, ...] = ()
        for node_id in range(1, self.bounds.nodes + 1):
            step = self.stepper.step(self.stepper.new_node(node_id), "start")
            nodes.append(step.node)
            net = _with(net, step.sent)
        return ClusterState(tuple(nodes), net, Budget.of(self.bounds), self.invariants.initial)

    def _settled(self, state: ClusterState, without: int = 0) -> ClusterState:
        """In the best of worlds: walks on until only fetches wait. What is said to ``without`` gets lost."""
        while True:
            views = [self.stepper.views[number] for number in state.nodes]
            syncing = next((index for index, view in enumerate(views) if view.syncing), None)
            net = tuple(number for number in state.net if self.stepper.messages[number].target != without)
            if syncing is not None:
                state = self._after(state, Move("synced", syncing, "synced", net, state.budget))
            elif net:
                message_id = min(net, key=self._urgency)
                rest = tuple(other for other in net if other != message_id)
                index = self.stepper.messages[message_id].target - 1
                state = self._after(state, Move("deliver", index, message_id, rest, state.budget))
            else:
                return state._replace(net=net)

    def _urgency(self, message_id: int) -> tuple[bool, int]:
        """Whoever does not vote looks for a leader until there is one."""
        message = self.stepper.messages[message_id]
        return max(message.source, message.target) > self.bounds.voters, message_id

    # --- a step of the cluster ----------------------------------------------------------------------------------------

    def _after(self, state: ClusterState, move: Move) -> ClusterState:
        """The move, and the invariants on what came of it."""
        if move.action is None:
            return ClusterState(state.nodes, move.net, move.budget, state.ghost)
        index = move.at
        before = state.nodes[index]
        step = self.stepper.step(before, move.action)
        net = _with(move.net, step.sent)
        if step.node == before:
            return state if move.kind in REFUSABLE else ClusterState(state.nodes, net, move.budget, state.ghost)
        nodes = (*state.nodes[:index], step.node, *state.nodes[index + 1 :])
        ghost = self.invariants.after(nodes, index, before, state.ghost)
        if not self.bounds.keep_late_answers:
            net = self._awaited_only(net, nodes)
        return ClusterState(nodes, net, move.budget, ghost)

    def _awaited_only(self, net: tuple[int, ...], nodes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number for number in net if self._is_awaited(self.stepper.messages[number], nodes))

    def _is_awaited(self, message: Message, nodes: tuple[int, ...]) -> bool:
        if message.response is None:
            return True
        return (message.source, message.request) in self.stepper.views[nodes[message.target - 1]].inflight


def _with(net: tuple[int, ...], sent: tuple[int, ...]) -> tuple[int, ...]:
    return net if not sent else tuple(sorted({*net, *sent}))
