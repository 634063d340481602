"""What must hold of partitions: who leads, who is in sync, what is committed and what consumers and producers are told of it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.broker.replication.partition import Partition
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.quorum.metadata.delta import MetadataDelta, PartitionKey
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import BrokerView, PartitionView
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.committed import Batch, Branch, CommittedLog, batches
from ottla.testing.simulation.compaction import CommittedRecords, Seen, records, transactions
from ottla.testing.simulation.losses import Losses
from ottla.testing.simulation.pieces import pieces
from ottla.testing.simulation.soundness import is_sound
from ottla.testing.simulation.violations import Violations

if TYPE_CHECKING:
    from ottla.testing.simulation.invariants import Invariants

Place = tuple[int, int, PartitionKey]
"""A replica in one life of its broker."""


class PartitionInvariants:
    """Of one run. ``everything`` knows the metadata of the node that is furthest."""

    def __init__(self, cluster: SimulatedCluster, violations: Violations, everything: "Invariants") -> None:
        self.losses = Losses()
        self.on_committed: list[Callable[[Partition, int], None]] = []
        """Told of a replica, up to where it is committed, whenever that may have moved."""
        self.bits_flip = False  # a log may be damaged, and is healed
        self._cluster = cluster
        self._violated = violations.add
        self._everything = everything
        self._leaders: dict[tuple[bytes, int, int], int] = {}  # (topic id, index, epoch) -> broker
        self._epochs: dict[PartitionKey, list[tuple[int, int]]] = {}  # (epoch, log end when it began)
        self._committed: dict[PartitionKey, CommittedLog] = {}
        self._compacted: dict[PartitionKey, CommittedRecords] = {}
        self._high_watermarks: dict[Place, int] = {}
        self._compared: dict[Place, int] = {}

    # --- metadata

    def image_moved(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Committed metadata is new. Called before anyone acts on it."""
        for key, before in delta.partitions.items():
            view = image.partition(*key)
            if before is not None and view is not None and view is not before:
                self.losses.elected(image.topics_by_id[key[0]].name, key, before, view)
                self._check_joins(image, key, before, view)
        self._check_fenced(image, delta)
        self._check_lost_directories(image, delta)

    def _check_joins(self, image: MetadataImage, key: PartitionKey, before: PartitionView, view: PartitionView) -> None:
        """Whoever is in the ISR may be elected the next moment, and makes the others delete what it has not."""
        for member in view.isr:
            may_lack = self.losses.is_chosen(key, member) or self.losses.has_lost_power(key, member)
            if member in before.isr or may_lack:
                continue
            broker = image.brokers.get(member)
            if broker is None or broker.fenced:
                self._violated(
                    "who joins the ISR is in service", f"{key[1]}: broker {member} joins {before.isr}: {broker}"
                )
            replica, committed = self._replica(member, key), self.committed_end(*key)
            if replica is not None and replica.log.log_end_offset < committed:
                self._violated(
                    "who joins the ISR has what is committed",
                    f"{replica}: broker {member} joins {before.isr} and ends at {replica.log.log_end_offset}, "
                    f"{committed} is committed",
                )

    def _check_fenced(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """A broker that is not in service leads nothing: its clients would wait until it is back."""
        fenced = [each for each in delta.brokers if each in image.brokers and image.brokers[each].fenced]
        for topic in image.topics_by_id.values() if fenced else ():
            for index, view in topic.partitions.items():
                for broker in fenced:
                    if _is_in_the_way(broker, view):
                        self._violated(
                            "who is fenced is in nobody's way",
                            f"{topic.name}-{index}: broker {broker} is fenced, leader {view.leader}, in sync {view.isr}",
                        )

    def _check_lost_directories(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Nor does one lead that cannot read its replica, though it is in service."""
        poorer = [
            image.brokers[each] for each, before in delta.brokers.items() if _lost_one(before, image.brokers.get(each))
        ]
        for topic in image.topics_by_id.values() if poorer else ():
            for index, view in topic.partitions.items():
                for broker in poorer:
                    if broker.id not in view.replicas or broker.has_directory(view.directory_of(broker.id)):
                        continue
                    if _is_in_the_way(broker.id, view):
                        self._violated(
                            "who lost a directory is in nobody's way there",
                            f"{topic.name}-{index}: of broker {broker.id}, leader {view.leader}, in sync {view.isr}",
                        )

    # --- who leads

    def hosted(self, node: int, partition: Partition) -> None:
        """A broker takes a partition on: with a log of its own, or what was deleted comes back."""
        log = partition.log
        if isinstance(log, Log) and log.topic_id not in (None, partition.topic_id):
            self._violated("a log belongs to one topic", f"{partition}: broker {node} takes an earlier topic's log")

    def dropped(self, node: int, key: PartitionKey) -> None:
        """A broker hosts it no longer: what it may have of it later begins anew."""
        place = (node, self._cluster.lives[node], key)
        self._high_watermarks.pop(place, None)
        self._compared.pop(place, None)

    def led(self, node: int, partition: Partition) -> None:
        """A broker begins to lead an epoch: it must have everything that was ever acknowledged."""
        key, epoch = _key(partition), partition.leader_epoch
        known = self._leaders.setdefault((*key, epoch), node)
        if known != node:
            # Both would give the same offsets to different records, and a consumer read one or the other.
            self._violated(
                "one leader a partition epoch", f"{partition}: brokers {known} and {node} lead epoch {epoch}"
            )
        end = partition.log.log_end_offset
        if not self._begins_epoch(key, epoch):
            return  # no new epoch, or old news: a node that catches up leads for a moment what it leads no longer
        self._epochs.setdefault(key, []).append((epoch, end))
        if self.losses.permits(key, node, epoch, end):
            self._branch(node, partition, key, epoch)
        committed = self.committed_end(*key)
        if end < committed:
            # It makes the others delete what producers were promised.
            self._violated(
                "a leader has every committed record",
                f"{partition}: broker {node} leads epoch {epoch} from {end}, {committed} records were committed",
            )
        with suppress(DamagedLogError):  # looked at again at rest, when it is healed
            self._check_compacted(node, partition, key)

    def _begins_epoch(self, key: PartitionKey, epoch: int) -> bool:
        begun = self._epochs.get(key)
        return not begun or epoch > begun[-1][0]

    def _branch(self, node: int, partition: Partition, key: PartitionKey, epoch: int) -> None:
        """What this leader lacks is lost, and it was allowed to."""
        start, end = partition.log.log_start_offset, partition.log.log_end_offset
        committed = self._committed.setdefault(key, CommittedLog())
        compacted = self._compacted.get(key)
        if compacted is None:
            committed.branch(epoch, start, batches(pieces(partition, start, end), start))
        else:
            committed.branch(epoch, end, ())
            compacted.cut(end)
        place = (node, self._cluster.lives[node], key)
        self._compared[place] = min(
            self._compared.get(place, 0), committed.end
        )  # it may be of a branch that was left before

    def former_leader(self, topic_id: bytes, index: int, leader: int) -> int:
        """The last one to lead the partition before ``leader`` does; -1: nobody else has led it yet."""
        led = {epoch: node for (*key, epoch), node in self._leaders.items() if key == [topic_id, index]}
        return next((led[epoch] for epoch in sorted(led, reverse=True) if led[epoch] != leader), -1)

    # --- what is committed

    def committed(self, topic_id: bytes, index: int) -> CommittedLog:
        return self._committed.get((topic_id, index)) or CommittedLog()

    def committed_end(self, topic_id: bytes, index: int) -> int:
        """The offset after the last record that any leader committed."""
        committed = self._committed.get((topic_id, index))
        return committed.end if committed is not None else 0

    def high_watermark_moved(self, node: int, partition: Partition) -> None:
        """Whatever is below the high watermark was promised: to producers as acknowledged, to consumers as readable."""
        key = _key(partition)
        place = (node, self._cluster.lives[node], key)
        high_watermark = partition.log.high_watermark
        if partition.leader is None and self._is_known(place, high_watermark):
            return
        if partition.leader is not None and self._begins_epoch(key, partition.leader_epoch):
            self.led(node, partition)  # one that is alone commits in the very step in which it begins to lead
        before = self._high_watermarks.get(place, 0)
        if high_watermark < before:
            # A consumer would not find again what it has read.
            self._violated("the high watermark never goes back", f"{partition} on {node}: {before} to {high_watermark}")
        self._high_watermarks[place] = high_watermark
        committed = self._committed.get(key)
        branch = committed.left_by(partition.leader_epoch) if committed is not None and committed.branches else None
        if committed is not None and branch is not None:
            self._note_lost(partition, committed, branch, high_watermark)
            return
        if partition.leader is not None and not self.losses.overtakes(key, partition.leader_epoch):
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

    def _is_known(self, place: Place, high_watermark: int) -> bool:
        """A follower is told of it with every answer: all below was compared when it came there, and stays as it is unless some of
        it is lost by a branch, or cut off (`truncated`)."""
        if self._compared.get(place) != high_watermark or self._high_watermarks.get(place) != high_watermark:
            return False
        committed = self._committed.get(place[2])
        return committed is not None and not committed.branches

    @staticmethod
    def _note_lost(partition: Partition, committed: CommittedLog, branch: Branch, end: int) -> None:
        """It has not heard of the election that leaves it behind: what it tells beyond the branch will be deleted."""
        if end > branch.offset:
            committed.lose(batches(pieces(partition, branch.offset, end), branch.offset))

    def _check_leader_may_commit(self, node: int, partition: Partition, key: PartitionKey, end: int) -> None:
        for epoch, start in reversed(self._epochs.get(key, ())):
            if epoch <= partition.leader_epoch:
                break
            if start < end:
                # The new leader does not have the record: the producer was promised what will be deleted.
                self._violated(
                    "no fenced leader acknowledges",
                    f"{partition}: broker {node} of epoch {partition.leader_epoch} commits up to {end}, "
                    f"epoch {epoch} began at {start}",
                )
        view = self._view(key)
        for member in (*view.isr, *view.elr) if view is not None else ():
            replica = self._replica(member, key)
            if replica is not None and replica.log.log_end_offset < end:
                # That member may be elected the next moment, and the record is gone.
                self._violated(
                    "every in-sync replica has what is committed",
                    f"{partition}: broker {node} commits up to {end}, broker {member} ends at "
                    f"{replica.log.log_end_offset}: {view}",
                )

    def _view(self, key: PartitionKey) -> PartitionView | None:
        topic = self._everything.metadata.topics_by_id.get(key[0])
        return topic.partitions.get(key[1]) if topic is not None else None

    def _replica(self, node: int, key: PartitionKey) -> Partition | None:
        server = self._cluster.running(node)
        return server.broker.replicas.partitions.get(key) if server is not None and server.broker is not None else None

    def _compare(self, place: Place, partition: Partition, key: PartitionKey, start: int, end: int) -> None:
        """Replicas equal up to the high watermark, or a consumer reads something else after a change of leaders."""
        committed = self._committed.get(key)
        if committed is None:
            committed = self._committed[key] = CommittedLog()
        compacted, given = partition.log.config.compacted, pieces(partition, start, end)
        if compacted:
            given = self._compare_compacted(place[0], partition, key, start, end)
        for batch in batches(given, start):
            if batch.base_offset < committed.end:
                if compacted:
                    continue
                known = committed.find(batch.base_offset)
                if known != batch:
                    self._violated(
                        "replicas are equal up to the high watermark",
                        f"{partition}: broker {place[0]} has {batch}, committed was {known}",
                    )
                    return
            else:
                committed.batches.append(batch)
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
            self._violated("compaction keeps the last value of each key", f"{partition}: broker {node} {fault}")
        known.commit(held, end, transactions(given))
        return iter(given)

    def _check_compacted(self, node: int, partition: Partition, key: PartitionKey) -> None:
        """Who leads has by itself everything that counts: followers and consumers get it from nobody else."""
        known, log = self._compacted.get(key), partition.log
        if known is not None:
            start, end = log.log_start_offset, log.log_end_offset
            fault = known.fault(records(pieces(partition, start, end), start, end), start, end, alone=True)
            if fault:
                self._violated("compaction keeps the last value of each key", f"{partition}: broker {node} {fault}")

    def truncated(self, node: int, key: PartitionKey, end: int) -> None:
        """What comes after the cut is compared anew."""
        place = (node, self._cluster.lives[node], key)
        for reached in (self._compared, self._high_watermarks):
            reached[place] = min(reached.get(place, 0), end)

    def log_opened(self, node: int, log: Log) -> None:
        """What a power cut tore goes at the start: else somebody is given it, or finds it when nobody else has what it was."""
        if not self.bits_flip and not is_sound(log):
            self._violated("logs are whole when they are opened", f"{log.partition} on {node}")

    # --- what users are told

    def fault_of_answer(self, key: PartitionKey, position: int, given: list[Batch], records: list[Seen]) -> str:
        """What is wrong with what a consumer was given from ``position`` on; "" if nothing is."""
        following, known = position, self._compacted.get(key)
        committed = self._committed.get(key, CommittedLog())
        for batch in given:
            if batch.last_offset < following:
                return f"{batch} came when {following} was next"
            if known is None:
                if committed.find(batch.base_offset) != batch:
                    return f"given {batch}, which was not committed"
                if batch.base_offset > following:
                    return f"given {batch}, and nothing from {following} on"
            following = batch.last_offset + 1
        if following > committed.end:
            return f"given records up to {following}, {committed.end} is committed"
        return known.fault(records, position, following, alone=False) if known is not None else ""

    def acknowledged(self, key: PartitionKey, topic: str, offset: int) -> None:
        """A producer was told: from now on the record must survive any crash that leaves one in-sync replica."""
        committed = self._committed.get(key)
        if committed is None or (offset >= committed.end and not committed.may_lack(offset)):
            # Only one broker has it for sure. It may die now.
            self._violated("only committed records are acknowledged", f"{topic}-{key[1]}: offset {offset}")

    # --- at rest

    def check_at_rest(self, topic_id: bytes) -> None:
        """The faults are over and everyone has everything: all replicas hold the same batches."""
        for key in [key for key in self._committed if key[0] == topic_id]:
            view = self._view(key)
            for node in view.replicas if view is not None else ():
                replica = self._replica(node, key)
                if key in self._compacted and replica is not None:
                    self._check_compacted(node, replica, key)
                    continue
                if replica is None or not self._has_all(replica, self._committed[key].batches):
                    self._violated(
                        "replicas are equal up to the high watermark", f"partition {key[1]} on {node} at rest"
                    )

    @staticmethod
    def _has_all(replica: Partition, committed: list[Batch]) -> bool:
        """All that was committed and that nobody deleted."""
        start, end = replica.log.log_start_offset, replica.log.log_end_offset
        return list(batches(pieces(replica, start, end), start)) == [
            batch for batch in committed if batch.last_offset >= start
        ]


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.index


def _is_in_the_way(broker: int, view: PartitionView) -> bool:
    return view.leader == broker or (broker in view.isr and view.isr != (broker,))


def _lost_one(before: BrokerView | None, now: BrokerView | None) -> bool:
    """A directory of a broker that runs on: one that starts anew says what it has, and where its replicas are, one by one."""
    return (
        before is not None
        and now is not None
        and before.epoch == now.epoch
        and not now.fenced
        and any(each not in now.directories for each in before.directories)
    )
