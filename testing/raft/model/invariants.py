"""What must hold in every state of a walk; node states are interned, so every comparison is made once."""

from typing import NamedTuple

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.majority import majority
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.voters import VoterHistory
from ottla.testing.raft.invariants import InvariantViolation
from ottla.testing.raft.memory import Entry, MemoryReplica, Storage, committed_range

Prefix = tuple[Entry, ...]


class Ghost(NamedTuple):
    """What the run has shown so far: who led which epoch, and what was committed by anyone."""

    leaders: tuple[tuple[int, int], ...]  # (epoch, node), ascending
    committed: Prefix


class Facts(NamedTuple):
    """What of a node state the invariants look at."""

    up: bool
    leads: bool
    epoch: int
    high_watermark: int
    election: ElectionState
    log: Prefix
    durable: Prefix
    voters: tuple[int, ...]  # in force
    changed_at: tuple[int, ...]  # offsets of the log's changes of voters


class ModelInvariants:
    """`note` sees each node state once, `after` each step of the cluster."""

    def __init__(self, *, with_voters: bool) -> None:
        """``with_voters``: records are compared with the voter sets they carry. (Snapshots do not keep those apart.)"""
        self._with_voters = with_voters
        self._facts: list[Facts] = []
        self._ghosts: list[Ghost] = []
        self._ghost_ids: dict[Ghost, int] = {}
        self._matched: dict[tuple[int, int], bool] = {}
        self.initial = self._intern(Ghost((), ()))

    def note(self, storage: Storage, replica: MemoryReplica | None) -> None:
        """Node states are numbered in the order they come here."""
        log = tuple(storage.entries if self._with_voters else committed_range(storage, 0, storage.end))
        durable, election = log[: storage.durable_end], storage.election
        history = storage.voter_history()
        rest = (election, log, durable, history.latest.ids(), _changes(storage, history))
        if replica is None:
            self._facts.append(Facts(False, False, election.epoch, 0, *rest))
            return
        state = replica.core.state
        if state.voters.latest != history.latest:
            story = f"node {state.key.id} goes by {state.voters.latest.ids()}, its log says {history.latest.ids()}"
            raise InvariantViolation("the newest voters of the log count", story)
        self._facts.append(Facts(True, isinstance(state.role, Leader), state.epoch, state.high_watermark, *rest))

    def _intern(self, ghost: Ghost) -> int:
        number = self._ghost_ids.setdefault(ghost, len(self._ghosts))
        if number == len(self._ghosts):
            self._ghosts.append(ghost)
        return number

    def after(self, nodes: tuple[int, ...], index: int, before: int, ghost_id: int) -> int:
        """Checks the node that changed, against its past, the others and the ghost; returns the ghost as it is now."""
        old, new, ghost = self._facts[before], self._facts[nodes[index]], self._ghosts[ghost_id]
        node = index + 1
        self._votes(node, old, new)
        if new.log != old.log:
            for other in nodes:
                self._log_matching(nodes[index], other)
        if new.up and new.leads and not (old.up and old.leads and old.epoch == new.epoch):
            ghost = self._elected(node, new, ghost)
        if new.up and new.high_watermark != old.high_watermark:
            ghost = self._committed(node, nodes, old, new, ghost)
        if new.changed_at != old.changed_at:
            self._one_change(node, new, ghost)
        return self._intern(ghost)

    @staticmethod
    def _one_change(node: int, new: Facts, ghost: Ghost) -> None:
        """Else a majority of the newest voters and one of those two sets before may have no voter in common."""
        pending = [offset for offset in new.changed_at if offset >= len(ghost.committed)]
        if len(pending) > 1:
            raise InvariantViolation("one change of voters at a time", f"node {node} has uncommitted ones at {pending}")

    @staticmethod
    def _votes(node: int, old: Facts, new: Facts) -> None:
        was, now = old.election, new.election
        if now.epoch < was.epoch or (new.up and new.epoch < now.epoch) or (old.up and new.up and new.epoch < old.epoch):
            raise InvariantViolation("monotonic epoch", f"node {node}: {was} -> {now}, running {new.epoch}")
        if now.epoch == was.epoch and was.voted is not None and now.voted not in (was.voted, None):
            raise InvariantViolation("one vote an epoch", f"node {node}: {was} -> {now}")
        if now.epoch == was.epoch and was.voted is not None and now.voted is None and now.leader_id != node:
            raise InvariantViolation("one vote an epoch", f"node {node} forgot: {was} -> {now}")
        if old.up and new.up and new.high_watermark < old.high_watermark:
            raise InvariantViolation(
                "monotonic high watermark", f"node {node}: {old.high_watermark} -> {new.high_watermark}"
            )

    def _log_matching(self, one: int, other: int) -> None:
        pair = (one, other) if one < other else (other, one)
        if pair not in self._matched:
            self._matched[pair] = _match(self._facts[one].log, self._facts[other].log)
        if not self._matched[pair]:
            raise InvariantViolation("log matching", f"{self._facts[one].log} and {self._facts[other].log}")

    @staticmethod
    def _elected(node: int, new: Facts, ghost: Ghost) -> Ghost:
        for epoch, leader in ghost.leaders:
            if epoch == new.epoch and leader != node:
                raise InvariantViolation("election safety", f"{leader} and {node} lead epoch {epoch}")
        leaders = tuple(sorted({*ghost.leaders, (new.epoch, node)}))
        if leaders[-1][0] == new.epoch and new.log[: len(ghost.committed)] != ghost.committed:
            raise InvariantViolation(
                "leader completeness", f"{node} leads {new.epoch} with {new.log}, committed {ghost.committed}"
            )
        return ghost._replace(leaders=leaders)

    def _committed(self, node: int, nodes: tuple[int, ...], old: Facts, new: Facts, ghost: Ghost) -> Ghost:
        if new.high_watermark > len(new.log):
            raise InvariantViolation("state machine safety", f"node {node} commits beyond its log")
        prefix = new.log[: new.high_watermark]
        shared = min(len(prefix), len(ghost.committed))
        if prefix[:shared] != ghost.committed[:shared]:
            raise InvariantViolation("state machine safety", f"node {node} has {prefix}, committed {ghost.committed}")
        if len(prefix) <= len(ghost.committed):
            return ghost
        holding = [voter for voter in new.voters if self._facts[nodes[voter - 1]].durable[: len(prefix)] == prefix]
        if len(holding) < majority(len(new.voters)):
            raise InvariantViolation("durable on a majority", f"{prefix} is on the disks of {holding}")
        self._leaders_have(nodes, prefix)
        return ghost._replace(committed=prefix)

    def _leaders_have(self, nodes: tuple[int, ...], prefix: Prefix) -> None:
        """An old leader may learn of its commit late: a newer one must have had it all along."""
        for other in nodes:
            facts = self._facts[other]
            if facts.up and facts.leads and facts.epoch > prefix[-1].epoch and facts.log[: len(prefix)] != prefix:
                raise InvariantViolation("leader completeness", f"epoch {facts.epoch} is led without {prefix}")


def _changes(storage: Storage, history: VoterHistory) -> tuple[int, ...]:
    """Where the log changes who votes; what the snapshot below it tells changed before."""
    found, voters = list[int](), history.at(storage.start).ids()
    for offset, latest in history.entries:
        if offset >= storage.start and latest.ids() != voters:
            if len({*latest.ids()} ^ {*voters}) != 1:
                raise InvariantViolation("one voter comes or goes", f"{voters} are followed by {latest.ids()}")
            found.append(offset)
            voters = latest.ids()
    return tuple(found)


def _match(one: Prefix, other: Prefix) -> bool:
    """Equal (offset, epoch) means equal records up to there."""
    for offset in range(min(len(one), len(other)) - 1, -1, -1):
        if one[offset].epoch == other[offset].epoch:
            return one[: offset + 1] == other[: offset + 1]
    return True
