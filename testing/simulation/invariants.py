"""What must hold while a cluster runs, looked at whenever it could have changed. Each says what a user would lose without it.

The checks hang on the few methods of the servers through which the state in question passes (see observer.py), so their
work is proportional to what changed.
"""

from collections.abc import Callable

from ottla.broker.replication.partition import Partition
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.committed import Batch, CommittedLog
from ottla.testing.simulation.compaction import Seen
from ottla.testing.simulation.partition_invariants import PartitionInvariants
from ottla.testing.simulation.quorum_invariants import QuorumInvariants
from ottla.testing.simulation.storage_counts import StorageCounts
from ottla.testing.simulation.violations import InvariantViolation, Violations


class Invariants:
    """One run's checks: of the quorum, of partitions. Methods are called as things happen; ``first`` is the first violation."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster, self.loop = cluster, cluster.loop
        self.violations = Violations()
        self.quorum = QuorumInvariants(self.violations)
        self.partitions = PartitionInvariants(cluster, self.violations, self)
        self.storage = StorageCounts()
        self.metadata = MetadataImage()  # that of the node that is furthest
        self.on_metadata: list[Callable[[], None]] = []
        self.forgiving: list[
            Callable[[str, BaseException], bool]
        ] = []  # of errors in the program's log: message, error
        self._judged = 0  # metadata below was looked at

    @property
    def first(self) -> InvariantViolation | None:
        return self.violations.first

    @property
    def on_violation(self) -> list[Callable[[], None]]:
        return self.violations.told

    @property
    def on_committed(self) -> list[Callable[[Partition, int], None]]:
        return self.partitions.on_committed

    def violated(self, invariant: str, story: str) -> None:
        self.violations.add(invariant, story)

    # --- metadata

    def image_moved(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Called before anyone acts on it."""
        measures = self.violations.measures
        if image.offset >= self._judged and measures:
            self._judged = image.offset + 1
            self.partitions.image_moved(image, delta)
        if image.offset >= self.metadata.offset or not measures:
            self.metadata = image
            for callback in self.on_metadata:
                callback()

    @property
    def quorum_leader(self) -> int:
        """Who leads the quorum in its latest epoch; -1 before there was one."""
        return self.quorum.leader

    def metadata_wiped(self, node: int) -> None:
        """A plain broker's election state is no vote: it may be forgotten."""
        self.quorum.wiped(node)

    def history_is_lost(self) -> None:
        """A disk forgot what was promised, against all that we ask of disks: from here on what was is no measure, and whoever did
        that looks after what is asked still. The node that is furthest may be of the lost history."""
        self.violations.measures = False
        self.quorum.history_is_lost()

    def snapshot_installed(self, node: int, image: MetadataImage) -> None:
        """Whoever catches up from a snapshot must know what the others read in the log."""
        self.storage.installed += 1
        self.quorum.snapshot_installed(node, image)

    # --- partitions

    def former_leader(self, topic_id: bytes, index: int, leader: int) -> int:
        """The last one to lead the partition before ``leader`` does; -1: nobody else has led it yet."""
        return self.partitions.former_leader(topic_id, index, leader)

    def committed_end(self, topic_id: bytes, index: int) -> int:
        """The offset after the last record that any leader committed."""
        return self.partitions.committed_end(topic_id, index)

    def committed(self, topic: str, index: int) -> CommittedLog:
        """What a partition of a topic that there is has committed, and what of it may be lost."""
        return self.partitions.committed(self.metadata.topics_by_name[topic].id, index)

    def fault_of_answer(
        self, topic_id: bytes, index: int, position: int, given: list[Batch], records: list[Seen]
    ) -> str:
        """What is wrong with what a consumer was given from ``position`` on; "" if nothing is."""
        return self.partitions.fault_of_answer((topic_id, index), position, given, records)

    def acknowledged(self, topic: str, index: int, offset: int) -> None:
        """A producer was told that its record stands at that offset."""
        view = self.metadata.topics_by_name.get(topic)
        if view is not None:
            self.partitions.acknowledged((view.id, index), topic, offset)

    def check_at_rest(self, topic_id: bytes) -> None:
        """The faults are over and everyone has everything."""
        self.partitions.check_at_rest(topic_id)
