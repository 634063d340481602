"""What must hold while a cluster runs, looked at whenever it could have changed. Each says what a user would lose without it.

The checks hang on the few methods of the servers through which the state in question passes (see observer.py), so their
work is proportional to what changed. Nothing is raised inside a node, where the program might handle it: the first
violation is kept, and ends the run.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ottla.broker.replication.partition import Partition
from ottla.log.compaction.worker import Outcome
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.proto.metadata_pb2 import MetadataRecord
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import MetadataDelta, PartitionKey
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import decode
from ottla.quorum.metadata.transactions import Transactions
from ottla.quorum.metadata.views import PartitionView
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.compaction import CommittedRecords, Seen, records, transactions
from ottla.testing.simulation.pieces import batches_of, pieces
from ottla.testing.simulation.soundness import is_sound

UNSEEN = "nothing fails unseen"


class InvariantViolation(AssertionError):
    """``invariant`` is its name; the message tells the story."""

    def __init__(self, invariant: str, story: str) -> None:
        super().__init__(f"{invariant}: {story}")
        self.invariant = invariant
        self.story = story


class Batch(NamedTuple):
    """What identifies a batch of a partition on every replica."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Storage(NamedTuple):
    """What all nodes did: segments rolled, cleanings that removed something, segments forgotten, snapshots of the metadata taken
    and installed."""

    rolled: int = 0
    cleaned: int = 0
    forgotten: int = 0
    snapshots: int = 0
    installed: int = 0

    def counts(self) -> dict[str, int]:
        """By names for people."""
        return dict(
            zip(("segments rolled", "cleanings", "forgotten", "snapshots taken", "installed"), self, strict=True)
        )


class _MetadataBatch(NamedTuple):
    """A committed batch of the metadata log, as a node applied it."""

    last_offset: int
    epoch: int
    records: tuple[bytes, ...]


class Invariants:
    """One run's checks. Methods are called as things happen; ``first`` is the first violation."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.first: InvariantViolation | None = None
        self.metadata = MetadataImage()  # that of the node that is furthest
        self.on_committed: list[Callable[[Partition, int], None]] = []
        """Told of a replica, up to where it is committed, whenever that may have moved."""
        self.on_metadata: list[Callable[[], None]] = []
        self.on_violation: list[Callable[[], None]] = []
        self.forgiving: list[
            Callable[[str, BaseException], bool]
        ] = []  # of errors in the program's log: message, error
        self.bits_flip = False  # a log may be damaged, and is healed
        self._judged = 0  # metadata below was looked at
        self._quorum_leaders: dict[int, int] = {}
        self._votes: dict[int, ElectionState] = {}
        self._metadata_log: dict[int, _MetadataBatch] = {}  # by base offset
        self._metadata_next: dict[int, int] = {}  # of each running node
        self._leaders: dict[tuple[bytes, int, int], int] = {}  # (topic id, index, epoch) -> broker
        self._epochs: dict[PartitionKey, list[tuple[int, int]]] = {}  # (epoch, log end when it began)
        self._committed: dict[PartitionKey, list[Batch]] = {}
        self._compacted: dict[PartitionKey, CommittedRecords] = {}
        self._high_watermarks: dict[tuple[int, int, PartitionKey], int] = {}
        self._compared: dict[tuple[int, int, PartitionKey], int] = {}
        self.storage = Storage()
        self._is_lost = False

    def violated(self, invariant: str, story: str) -> None:
        if self.first is None and (not self._is_lost or invariant == UNSEEN):
            self.first = InvariantViolation(invariant, story)
            for callback in self.on_violation:
                callback()

    # --- the quorum

    def quorum_changed(self, node: int, state: RaftState) -> None:
        """Two leaders of one epoch would each commit metadata: a topic's creation confirmed by one is lost by the other."""
        if isinstance(state.role, Leader):
            epoch = state.epoch
            known = self._quorum_leaders.setdefault(epoch, node)
            if known != node:
                self.violated("one quorum leader an epoch", f"nodes {known} and {node} lead epoch {epoch}")

    @property
    def quorum_leader(self) -> int:
        """Who leads the quorum in its latest epoch; -1 before there was one."""
        return self._quorum_leaders[max(self._quorum_leaders)] if self._quorum_leaders else -1

    def vote_saved(self, node: int, state: ElectionState) -> None:
        self._votes[node] = state

    def vote_loaded(self, node: int, store: ElectionStore, state: ElectionState) -> None:
        """A node that forgets a vote after a power cut votes twice, and two leaders are elected in one epoch."""
        saved = self._votes.get(node)
        if saved is not None and (state.epoch < saved.epoch or (state.epoch == saved.epoch and state != saved)):
            self.violated("votes are remembered", f"node {node} saved {saved} and read {state} after its restart")

    # --- committed metadata

    def image_moved(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Called before anyone acts on it."""
        if image.offset >= self._judged and not self._is_lost:
            self._judged = image.offset + 1
            self._check_joins(image, delta)
            self._check_fenced(image, delta)
        if image.offset >= self.metadata.offset or self._is_lost:
            self.metadata = image
            for callback in self.on_metadata:
                callback()

    def _check_joins(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Whoever is in the ISR may be elected the next moment, and makes the others delete what it has not."""
        for key, before in delta.partitions.items():
            view = image.partition(*key)
            if before is None or view is None:
                continue
            for member in view.isr:
                replica = self._replica(member, key) if member not in before.isr else None
                if replica is not None and replica.log.log_end_offset < self.committed_end(*key):
                    self.violated(
                        "who joins the ISR has what is committed",
                        f"{replica}: broker {member} joins {before.isr} and ends at {replica.log.log_end_offset}, "
                        f"{self.committed_end(*key)} is committed",
                    )

    def _check_fenced(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """A broker that is not in service leads nothing: its clients would wait until it is back."""
        fenced = [each for each in delta.brokers if each in image.brokers and image.brokers[each].fenced]
        for topic in image.topics_by_id.values() if fenced else ():
            for index, view in topic.partitions.items():
                for broker in fenced:
                    if view.leader == broker or (broker in view.isr and view.isr != (broker,)):
                        self.violated(
                            "who is fenced is in nobody's way",
                            f"{topic.name}-{index}: broker {broker} is fenced, leader {view.leader}, in sync {view.isr}",
                        )

    def metadata_committed(self, node: int, batch: CommittedBatch) -> None:
        """Else topics appear, vanish or differ between brokers, and clients are sent to leaders that are none."""
        entry = _MetadataBatch(batch.last_offset, batch.epoch, tuple(batch.records))
        known = self._metadata_log.setdefault(batch.base_offset, entry)
        if known != entry:
            self.violated(
                "committed metadata is the same everywhere",
                f"node {node} applied another batch at {batch.base_offset}: epoch {batch.epoch}, not {known.epoch}",
            )
        expected = self._metadata_next[node]
        if batch.base_offset > expected:
            self.violated(
                "committed metadata is the same everywhere",
                f"node {node} applied offset {batch.base_offset}, its next one was {expected}",
            )
        self._metadata_next[node] = batch.last_offset + 1

    def metadata_loaded(self, node: int, next_offset: int) -> None:
        """The node starts from what its store holds, or from a snapshot."""
        self._metadata_next[node] = next_offset

    def metadata_wiped(self, node: int) -> None:
        """A plain broker's election state is no vote: it may be forgotten."""
        self._votes.pop(node, None)

    def history_is_lost(self) -> None:
        """A disk forgot what was promised, against all that we ask of disks: from here on what was is no measure, and whoever did
        that looks after what is asked still. The node that is furthest may be of the lost history."""
        self._is_lost = True
        self._metadata_log.clear()

    def snapshot_taken(self) -> None:
        self.storage = self.storage._replace(snapshots=self.storage.snapshots + 1)

    def snapshot_installed(self, node: int, image: MetadataImage) -> None:
        """Whoever catches up from a snapshot must know what the others read in the log."""
        self.storage = self.storage._replace(installed=self.storage.installed + 1)
        if not self._is_lost and image != self._image_at(image.offset):
            self.violated("a snapshot is what the log says", f"node {node} was given another image at {image.offset}")

    def _image_at(self, offset: int) -> MetadataImage:
        image, transactions = MetadataImage(), Transactions[MetadataRecord]()
        for base in sorted(base for base in self._metadata_log if base <= offset):
            for record in map(decode, self._metadata_log[base].records):
                for each in transactions.take(record, record):
                    image.apply(each, MetadataDelta())
        return image

    # --- partitions

    def hosted(self, node: int, partition: Partition) -> None:
        """A broker takes a partition on: with a log of its own, or what was deleted comes back."""
        log = partition.log
        if isinstance(log, Log) and log.topic_id not in (None, partition.topic_id):
            self.violated("a log belongs to one topic", f"{partition}: broker {node} takes an earlier topic's log")

    def dropped(self, node: int, key: PartitionKey) -> None:
        """A broker hosts it no longer: what it may have of it later begins anew."""
        place = (node, self.cluster.lives[node], key)
        self._high_watermarks.pop(place, None)
        self._compared.pop(place, None)

    def partition_led(self, node: int, partition: Partition) -> None:
        """A broker begins to lead an epoch: it must have everything that was ever acknowledged."""
        key, epoch = _key(partition), partition.leader_epoch
        known = self._leaders.setdefault((*key, epoch), node)
        if known != node:
            # Both would give the same offsets to different records, and a consumer read one or the other.
            self.violated("one leader a partition epoch", f"{partition}: brokers {known} and {node} lead epoch {epoch}")
        begun, end = self._epochs.setdefault(key, []), partition.log.log_end_offset
        if begun and epoch <= begun[-1][0]:
            return  # no new epoch, or old news: a node that catches up leads for a moment what it leads no longer
        begun.append((epoch, end))
        committed = self.committed_end(*key)
        if end < committed:
            # It makes the others delete what producers were promised.
            self.violated(
                "a leader has every committed record",
                f"{partition}: broker {node} leads epoch {epoch} from {end}, {committed} records were committed",
            )
        with suppress(DamagedLogError):  # looked at again at rest, when it is healed
            self._check_compacted(node, partition, key)

    def former_leader(self, topic_id: bytes, index: int, leader: int) -> int:
        """The last one to lead the partition before ``leader`` does; -1: nobody else has led it yet."""
        led = {epoch: node for (*key, epoch), node in self._leaders.items() if key == [topic_id, index]}
        return next((led[epoch] for epoch in sorted(led, reverse=True) if led[epoch] != leader), -1)

    def committed_end(self, topic_id: bytes, index: int) -> int:
        """The offset after the last record that any leader committed."""
        committed = self._committed.get((topic_id, index))
        return committed[-1].last_offset + 1 if committed else 0

    def high_watermark_moved(self, node: int, partition: Partition) -> None:
        """Whatever is below the high watermark was promised: to producers as acknowledged, to consumers as readable."""
        key = _key(partition)
        place = (node, self.cluster.lives[node], key)
        high_watermark = partition.log.high_watermark
        before = self._high_watermarks.get(place, 0)
        if high_watermark < before:
            # A consumer would not find again what it has read.
            self.violated("the high watermark never goes back", f"{partition} on {node}: {before} to {high_watermark}")
        self._high_watermarks[place] = high_watermark
        if partition.leader is not None:
            self._check_leader_may_commit(node, partition, key, high_watermark)
        start = max(self._compared.get(place, 0), partition.log.log_start_offset)
        if start >= high_watermark and place in self._compared:
            return  # it moved nowhere, and all below it was compared
        try:
            self._compare(place, partition, key, start, high_watermark)
            self._compared[place] = high_watermark
        except DamagedLogError:  # given to nobody, and compared once it is healed; what is new stands behind it
            with suppress(DamagedLogError):
                self._compare(place, partition, key, max(start, self.committed_end(*key)), high_watermark)

    def _check_leader_may_commit(self, node: int, partition: Partition, key: PartitionKey, end: int) -> None:
        for epoch, start in reversed(self._epochs.get(key, ())):
            if epoch <= partition.leader_epoch:
                break
            if start < end:
                # The new leader does not have the record: the producer was promised what will be deleted.
                self.violated(
                    "no fenced leader acknowledges",
                    f"{partition}: broker {node} of epoch {partition.leader_epoch} commits up to {end}, "
                    f"epoch {epoch} began at {start}",
                )
        view = self._view(key)
        for member in view.isr if view is not None else ():
            replica = self._replica(member, key)
            if replica is not None and replica.log.log_end_offset < end:
                # That member may be elected the next moment, and the record is gone.
                self.violated(
                    "every in-sync replica has what is committed",
                    f"{partition}: broker {node} commits up to {end}, broker {member} ends at "
                    f"{replica.log.log_end_offset}",
                )

    def _view(self, key: PartitionKey) -> PartitionView | None:
        topic = self.metadata.topics_by_id.get(key[0])
        return topic.partitions.get(key[1]) if topic is not None else None

    def _replica(self, node: int, key: PartitionKey) -> Partition | None:
        server = self.cluster.running(node)
        return server.broker.replicas.partitions.get(key) if server is not None and server.broker is not None else None

    def _compare(
        self, place: tuple[int, int, PartitionKey], partition: Partition, key: PartitionKey, start: int, end: int
    ) -> None:
        """Replicas equal up to the high watermark, or a consumer reads something else after a change of leaders."""
        committed = self._committed.setdefault(key, [])
        compacted, given = partition.log.config.compacted, pieces(partition, start, end)
        if compacted:
            given = self._compare_compacted(place[0], partition, key, start, end)
        for batch in batches(given, start):
            if committed and batch.base_offset <= committed[-1].last_offset:
                if compacted:
                    continue
                known = _find(committed, batch.base_offset)
                if known != batch:
                    self.violated(
                        "replicas are equal up to the high watermark",
                        f"{partition}: broker {place[0]} has {batch}, committed was {known}",
                    )
                    return
            else:
                committed.append(batch)
        for heard in self.on_committed:
            heard(partition, end)

    def _compare_compacted(
        self, node: int, partition: Partition, key: PartitionKey, start: int, end: int
    ) -> Iterator[bytes]:
        """Else a consumer reads another value of a key, or none, after a change of leaders. Returns what was read."""
        known, given = self._compacted.setdefault(key, CommittedRecords()), list(pieces(partition, start, end))
        held = list(records(given, start, end))
        fault = known.fault(held, start, end, alone=False)
        if fault:
            self.violated("compaction keeps the last value of each key", f"{partition}: broker {node} {fault}")
        known.commit(held, end, transactions(given))
        return iter(given)

    def _check_compacted(self, node: int, partition: Partition, key: PartitionKey) -> None:
        """Who leads has by itself everything that counts: followers and consumers get it from nobody else."""
        known, log = self._compacted.get(key), partition.log
        if known is not None:
            start, end = log.log_start_offset, log.log_end_offset
            fault = known.fault(records(pieces(partition, start, end), start, end), start, end, alone=True)
            if fault:
                self.violated("compaction keeps the last value of each key", f"{partition}: broker {node} {fault}")

    def fault_of_answer(
        self, topic_id: bytes, index: int, position: int, given: list[Batch], records: list[Seen]
    ) -> str:
        """What is wrong with what a consumer was given from ``position`` on; "" if nothing is."""
        key, following = (topic_id, index), position
        known = self._compacted.get(key)
        for batch in given:
            if batch.last_offset < following:
                return f"{batch} came when {following} was next"
            if known is None:
                if _find(self._committed.get(key, []), batch.base_offset) != batch:
                    return f"given {batch}, which was not committed"
                if batch.base_offset > following:
                    return f"given {batch}, and nothing from {following} on"
            following = batch.last_offset + 1
        if following > self.committed_end(*key):
            return f"given records up to {following}, {self.committed_end(*key)} is committed"
        return known.fault(records, position, following, alone=False) if known is not None else ""

    def truncated(self, node: int, key: PartitionKey, end: int) -> None:
        """What comes after the cut is compared anew."""
        place = (node, self.cluster.lives[node], key)
        for reached in (self._compared, self._high_watermarks):
            reached[place] = min(reached.get(place, 0), end)

    def acknowledged(self, topic: str, index: int, offset: int) -> None:
        """A producer was told: from now on the record must survive any crash that leaves one in-sync replica."""
        view = self.metadata.topics_by_name.get(topic)
        if view is not None and offset >= self.committed_end(view.id, index):
            # Only one broker has it for sure. It may die now.
            self.violated("only committed records are acknowledged", f"{topic}-{index}: offset {offset}")

    def log_opened(self, node: int, log: Log) -> None:
        """What a power cut tore goes at the start: else somebody is given it, or finds it when nobody else has what it was."""
        if not self.bits_flip and not is_sound(log):
            self.violated("logs are whole when they are opened", f"{log.partition} on {node}")

    # --- what the logs do, so that a run can tell that it had anything to check

    def segment_created(self, base_offset: int) -> None:
        if base_offset:
            self.storage = self.storage._replace(rolled=self.storage.rolled + 1)

    def cleaned(self, installed: bool, outcome: Outcome) -> None:
        result = outcome.result
        if installed and result is not None and result.written_bytes < result.read_bytes:
            self.storage = self.storage._replace(cleaned=self.storage.cleaned + 1)

    def forgotten(self, segments: int) -> None:
        self.storage = self.storage._replace(forgotten=self.storage.forgotten + segments)

    # --- at rest

    def check_at_rest(self, topic_id: bytes) -> None:
        """The faults are over and everyone has everything: all replicas hold the same batches, all nodes the same image."""
        for key in [key for key in self._committed if key[0] == topic_id]:
            view = self._view(key)
            for node in view.replicas if view is not None else ():
                replica = self._replica(node, key)
                if key in self._compacted and replica is not None:
                    self._check_compacted(node, replica, key)
                    continue
                if replica is None or not self._has_all(replica, self._committed[key]):
                    self.violated(
                        "replicas are equal up to the high watermark", f"partition {key[1]} on {node} at rest"
                    )

    def _has_all(self, replica: Partition, committed: list[Batch]) -> bool:
        """All that was committed and that nobody deleted."""
        start, end = replica.log.log_start_offset, replica.log.log_end_offset
        return list(batches(pieces(replica, start, end), start)) == [
            batch for batch in committed if batch.last_offset >= start
        ]


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.index


def _find(committed: list[Batch], base_offset: int) -> Batch | None:
    low, high = 0, len(committed)
    while low < high:
        middle = (low + high) // 2
        if committed[middle].base_offset < base_offset:
            low = middle + 1
        else:
            high = middle
    return committed[low] if low < len(committed) and committed[low].base_offset == base_offset else None


def batches(given: Iterable[bytes], start: int) -> Iterator[Batch]:
    """The batches from the one that holds ``start`` on, in pieces of a replica's log."""
    for data in given:
        for _, header in batches_of(data):
            if header.last_offset >= start:
                yield Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
