"""What must hold after every event of a run. Each says what a user would lose without it."""

from collections.abc import Iterable, Mapping

from ottla.quorum.raft.instructions import CommitAdvanced
from ottla.quorum.raft.majority import majority
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.voters import ReplicaKey
from ottla.testing.raft.memory import Entry, MemoryReplica, Storage, committed_range

Disks = Mapping[ReplicaKey, Storage]
"""Those that were lost too, as they were then; by the node id alone the one that a static voter has now."""


class InvariantViolation(AssertionError):
    """``invariant`` is its name; the message tells the story."""

    def __init__(self, invariant: str, story: str) -> None:
        super().__init__(f"{invariant}: {story}")
        self.invariant = invariant


class Invariants:
    """Sees each replica after each of its events. Cost is proportional to what changed."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # epoch -> leader
        self.elections: dict[int, tuple[int, object]] = {}  # node -> (persisted epoch, vote)
        self.known: dict[tuple[int, int], tuple[bytes, int]] = {}  # (offset, epoch) -> (payload, epoch before it)
        self.checked: dict[int, tuple[int, int]] = {}  # node -> (log end, last epoch) up to which its log was compared
        self.committed: list[Entry] = []
        self.high_watermarks: dict[int, int] = {}  # of the running replicas
        self.exposed = 0

    def forget_running(self, node: int) -> None:
        """The process ended: its high watermark starts again."""
        self.high_watermarks.pop(node, None)
        self.checked.pop(node, None)

    def forget_disk(self, node: int) -> None:
        """The node lost its disk: it is another replica now."""
        self.forget_running(node)
        self.elections.pop(node, None)

    def check(self, node: int, replica: MemoryReplica, disks: Disks) -> None:
        self._elections(node, replica)
        self._log_matching(node, replica)
        self._commitment(node, replica, disks)

    def _elections(self, node: int, replica: MemoryReplica) -> None:
        state, election = replica.core.state, replica.storage.election
        if isinstance(state.role, Leader):
            known = self.leaders.setdefault(state.epoch, node)
            if known != node:
                # Two leaders of one epoch would acknowledge different records under the same name.
                raise InvariantViolation("election safety", f"{known} and {node} lead epoch {state.epoch}")
            if known == node and state.role.epoch_start < 0:
                raise InvariantViolation("election safety", "leader without epoch start")
        before = self.elections.get(node)
        if before is not None:
            # Going back to an older epoch, or voting twice in one, lets two leaders be elected.
            if election.epoch < before[0] or state.epoch < election.epoch:
                raise InvariantViolation(
                    "monotonic epoch", f"node {node}: {before[0]} -> {election.epoch}, {state.epoch}"
                )
            if election.epoch == before[0] and before[1] is not None and election.voted not in (None, before[1]):
                raise InvariantViolation("one vote an epoch", f"node {node}: {before[1]} and {election.voted}")
            if (
                election.epoch == before[0]
                and election.voted is None
                and before[1] is not None
                and election.leader_id is None
            ):
                raise InvariantViolation("one vote an epoch", f"node {node} forgot its vote in {election.epoch}")
        self.elections[node] = (election.epoch, election.voted)

    def _log_matching(self, node: int, replica: MemoryReplica) -> None:
        """Records with the same offset and epoch are the same, and so is all before them: else replicas diverge unseen."""
        storage = replica.storage
        end, last_epoch = storage.end, storage.entries[-1].epoch if storage.entries else storage.base_epoch
        compared = self.checked.get(node)
        if compared == (end, last_epoch):
            return
        begin = storage.start if compared is None or compared[0] > end else max(storage.start, compared[0] - 1)
        for offset in range(begin, end):
            entry = storage.entries[offset - storage.start]
            before = storage.entries[offset - storage.start - 1].epoch if offset > storage.start else storage.base_epoch
            seen = self.known.setdefault((offset, entry.epoch), (entry.payload, before))
            if seen != (entry.payload, before):
                raise InvariantViolation(
                    "log matching", f"node {node} at {offset}, epoch {entry.epoch}: {entry} against {seen}"
                )
        self.checked[node] = (end, last_epoch)

    def _commitment(self, node: int, replica: MemoryReplica, disks: Disks) -> None:
        state, storage = replica.core.state, replica.storage
        before = self.high_watermarks.get(node, 0)
        if state.high_watermark < before:
            # What was told to be committed would be taken back.
            raise InvariantViolation("monotonic high watermark", f"node {node}: {before} -> {state.high_watermark}")
        if not state.settings.can_vote and storage.end > len(self.committed):
            # A broker would act on metadata that may never have been.
            raise InvariantViolation("observers see committed records", f"node {node} has {storage.end}")
        if state.high_watermark > storage.end:
            raise InvariantViolation("state machine safety", f"node {node} commits beyond its log")
        if state.high_watermark > before:
            self._compare_committed(node, storage, before, state.high_watermark)
            self.high_watermarks[node] = state.high_watermark
        if isinstance(state.role, Leader):
            self._leader(node, replica, disks, grown=state.high_watermark > before)

    def note_commits(self, node: int, storage: Storage, told: Iterable[object]) -> None:
        """Of a replica that died right after: others may have heard of it."""
        for news in told:
            if isinstance(news, CommitAdvanced):
                self._compare_committed(node, storage, self.high_watermarks.get(node, 0), news.high_watermark)

    def _compare_committed(self, node: int, storage: Storage, before: int, high_watermark: int) -> None:
        """Every node applies the same records in the same order. What lies below ``before`` was compared then."""
        begin = min(before, len(self.committed))
        found = committed_range(storage, begin, high_watermark)
        shared = min(high_watermark, len(self.committed)) - begin
        known = self.committed[begin : begin + shared]
        if found[:shared] != known:
            at = next(index for index in range(shared) if found[index] != known[index])
            story = f"node {node} at {begin + at}: {found[at]}, not {known[at]}"
            raise InvariantViolation("state machine safety", story)
        self.committed.extend(found[shared:])

    def _leader(self, node: int, replica: MemoryReplica, disks: Disks, *, grown: bool) -> None:
        state, storage = replica.core.state, replica.storage
        assert isinstance(state.role, Leader)
        if state.epoch == max(self.leaders):
            # A leader that lacks a committed record would make the others delete it.
            total = len(self.committed)
            if storage.end < total or (
                grown and committed_range(storage, self.exposed, total) != self.committed[self.exposed :]
            ):
                raise InvariantViolation(
                    "leader completeness", f"leader {node} of epoch {state.epoch} ends at {storage.end}"
                )
        if grown and state.role.high_watermark_known:
            self._on_majority(node, replica, disks)
            if state.high_watermark < self.exposed and state.epoch == max(self.leaders):
                raise InvariantViolation("monotonic high watermark", f"leader {node} exposes {state.high_watermark}")
            self.exposed = max(self.exposed, state.high_watermark)

    def _on_majority(self, node: int, replica: MemoryReplica, disks: Disks) -> None:
        """What is committed survives the loss of any minority: it is, or was until one was lost, on a majority of disks,
        synced."""
        state = replica.core.state
        voters = state.voters.latest.voters
        holding = [voter.key.id for voter in voters if _has_held(disks, voter.key, state.high_watermark)]
        if len(holding) < majority(len(voters)):
            raise InvariantViolation(
                "durable on a majority", f"high watermark {state.high_watermark}, durable on {holding}"
            )


def _has_held(disks: Disks, voter: ReplicaKey, end: int) -> bool:
    """A static voter may have acknowledged on a disk that it lost since (all others held the same then)."""
    if disks[voter].durable_end >= end:
        return True
    lost = (disk for key, disk in disks.items() if voter.directory_id is None and key.id == voter.id)
    return any(disk.durable_end >= end for disk in lost)
