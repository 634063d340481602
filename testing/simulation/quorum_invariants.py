"""What must hold of the quorum and of its log: one leader an epoch, votes that are remembered, the same metadata everywhere."""

from typing import NamedTuple

from ottla.proto.metadata_pb2 import MetadataRecord
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import decode
from ottla.quorum.metadata.transactions import Transactions
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState
from ottla.testing.simulation.violations import Violations


class _MetadataBatch(NamedTuple):
    """A committed batch of the metadata log, as a node applied it."""

    last_offset: int
    epoch: int
    records: tuple[bytes, ...]


class QuorumInvariants:
    """Of one run."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._leaders: dict[int, int] = {}
        self._votes: dict[int, ElectionState] = {}
        self._log: dict[int, _MetadataBatch] = {}  # by base offset
        self._next: dict[int, int] = {}  # of each running node

    def changed(self, node: int, state: RaftState) -> None:
        """Two leaders of one epoch would each commit metadata: a topic's creation confirmed by one is lost by the other."""
        if isinstance(state.role, Leader):
            epoch = state.epoch
            known = self._leaders.setdefault(epoch, node)
            if known != node:
                self._violations.add("one quorum leader an epoch", f"nodes {known} and {node} lead epoch {epoch}")

    @property
    def leader(self) -> int:
        """Who leads the quorum in its latest epoch; -1 before there was one."""
        return self._leaders[max(self._leaders)] if self._leaders else -1

    @property
    def epoch(self) -> int:
        """The latest in which somebody led; -1 before there was one."""
        return max(self._leaders, default=-1)

    def vote_saved(self, node: int, state: ElectionState) -> None:
        self._votes[node] = state

    def vote_loaded(self, node: int, store: ElectionStore, state: ElectionState) -> None:
        """A node that forgets a vote after a power cut votes twice, and two leaders are elected in one epoch. It may know more than was saved: what
        it wrote and could not sync, which ended it."""
        saved = self._votes.get(node)
        if saved is not None and _forgets(saved, state):
            self._violations.add(
                "votes are remembered", f"node {node} saved {saved} and read {state} after its restart"
            )

    def committed(self, node: int, batch: CommittedBatch) -> None:
        """Else topics appear, vanish or differ between brokers, and clients are sent to leaders that are none."""
        entry = _MetadataBatch(batch.last_offset, batch.epoch, tuple(batch.records))
        known = self._log.setdefault(batch.base_offset, entry)
        if known != entry:
            self._violations.add(
                "committed metadata is the same everywhere",
                f"node {node} applied another batch at {batch.base_offset}: epoch {batch.epoch}, not {known.epoch}",
            )
        expected = self._next[node]
        if batch.base_offset > expected:
            self._violations.add(
                "committed metadata is the same everywhere",
                f"node {node} applied offset {batch.base_offset}, its next one was {expected}",
            )
        self._next[node] = batch.last_offset + 1

    def loaded(self, node: int, next_offset: int) -> None:
        """The node starts from what its store holds, or from a snapshot."""
        self._next[node] = next_offset

    def wiped(self, node: int) -> None:
        """A plain broker's election state is no vote: it may be forgotten."""
        self._votes.pop(node, None)

    def history_is_lost(self) -> None:
        """What was committed is no measure any more."""
        self._log.clear()

    def snapshot_installed(self, node: int, image: MetadataImage) -> None:
        """Whoever catches up from a snapshot must know what the others read in the log."""
        if self._violations.measures and image != self._image_at(image.offset):
            self._violations.add(
                "a snapshot is what the log says", f"node {node} was given another image at {image.offset}"
            )

    def _image_at(self, offset: int) -> MetadataImage:
        image, transactions = MetadataImage(), Transactions[MetadataRecord]()
        for base in sorted(base for base in self._log if base <= offset):
            for record in map(decode, self._log[base].records):
                for each in transactions.take(record, record):
                    image.apply(each, MetadataDelta())
        return image


def _forgets(saved: ElectionState, read: ElectionState) -> bool:
    if read.epoch != saved.epoch:
        return read.epoch < saved.epoch
    if saved.leader_id is not None:
        return read.leader_id != saved.leader_id
    # Whoever knows the epoch's leader gives no vote in it any more.
    return saved.voted is not None and read.leader_id is None and read.voted != saved.voted
