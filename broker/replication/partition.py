"""A hosted partition: its log, its role, and who waits on it.

The rules are the deciders'; this joins them to the log and tells the waiters. Everything runs on the event loop, so each
method is one step that nothing interrupts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.broker.replication.acks import ACKS_ALL, outcome
from ottla.broker.replication.decisions.follower import PartitionFollower
from ottla.broker.replication.decisions.healing import may_cut
from ottla.broker.replication.decisions.high_watermark import follower_high_watermark
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.replica import BrokerStanding, FollowerContact
from ottla.broker.replication.decisions.throttle import names_replica
from ottla.broker.replication.intake import Intake, OnPrepared
from ottla.broker.replication.joining import consider_expand, note_isr, retry_joins
from ottla.broker.replication.own_appends import OnCommitted, OwnAppend
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import OffsetWaiters, ParkedRequest
from ottla.broker.replication.watches import Watches
from ottla.log.batch import BatchHeader, read_header
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.producers.verification import VerificationGuards
from ottla.log.results import AppendInfo
from ottla.log.validation import LIGHT_BYTES_MAX, is_heavy
from ottla.quorum.metadata.views import NO_LEADER
from ottla.runtime.errors import ErrorCode, KafkaError

UNDAMAGED = -1

Write = Callable[[memoryview, int, int], AppendInfo]
"""How the log takes a batch, in a leader epoch at a time of day."""

logger = logging.getLogger(__name__)


class Partition:
    """One replica on this broker. Leader, follower, or neither while it has no leader."""

    __slots__ = (
        "damaged_from",
        "delete_waiters",
        "durable_waiters",
        "follower",
        "index",
        "intake",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "produce_waiters",
        "replicas",
        "services",
        "topic",
        "topic_id",
        "usable",
        "verification",
        "watches",
    )

    def __init__(self, topic: str, index: int, topic_id: bytes, log: Log, services: PartitionServices) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.damaged_from = UNDAMAGED
        self.usable = True  # False once its disk failed or it was deleted: KAFKA_STORAGE_ERROR until hosted anew
        self.watches = Watches(services.wakes)
        self.produce_waiters = OffsetWaiters()
        self.durable_waiters = OffsetWaiters()  # acks=1 on topics that sync first
        self.delete_waiters: Sequence[
            tuple[int, ParkedRequest, int]
        ] = ()  # DeleteRecords, until every replica begins there
        self.intake: Intake | None = None  # made when a batch has to be prepared on a thread; then it stays
        self.verification: VerificationGuards | None = None  # made when the first transaction comes; then it stays
        self.services = services

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # Roles.

    def lead(
        self,
        node_id: int,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        brokers: Mapping[int, BrokerStanding],
        lag_time_max_ms: int,
        now_ms: int,
    ) -> bool:
        """Leads from now on; False if the news is older than what is known (an AlterPartition's answer came first).

        Raises StorageError: what this replica cut off while it followed could not be made to stay off, or the log has to be
        read anew and cannot be.
        """
        if partition_epoch < self.partition_epoch:
            return False
        self.log.make_whole()
        leader = self.leader or PartitionLeader(node_id, brokers, lag_time_max_ms)
        log = self.log
        log.finish_cut()
        new_epoch = leader.lead(
            epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=isr,
            replicas=replicas,
            min_insync_replicas=log.config.min_insync_replicas,
            log_end_offset=log.log_end_offset,
            stable_end_offset=log.recovery_point if log.config.flush_before_ack else log.log_end_offset,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
        )
        if new_epoch:
            # Noted even before anything is written: followers must find where our epoch began.
            log.epochs.assign(leader_epoch, log.log_end_offset)
            self._forget_verifications()
        self.leader, self.follower = leader, None
        self._adopt(node_id, leader_epoch, partition_epoch, replicas)
        if new_epoch:
            self.watches.touch_all()
        note_isr(self)
        self.advance(leader, now_ms)
        if leader.high_watermark < leader.log_end_offset or leader.has_silent_member():
            self.services.behind[self] = None
        if leader.stable_end_offset < leader.log_end_offset:
            self.services.durability.follow(log, self._stable)
        return True

    def follow(
        self,
        leader_id: int,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        backoff_max_ms: int,
    ) -> bool:
        """Follows ``leader_id`` (-1: nobody leads). True if the leader epoch is a new one: fetch anew.

        Raises StorageError: a damaged log could not be cut, or the log has to be read anew and cannot be.
        """
        if partition_epoch < self.partition_epoch:
            return False
        self.log.make_whole()
        new_epoch = leader_epoch > self.leader_epoch or self.follower is None
        fetched = leader_epoch <= self.leader_epoch
        if self.is_damaged and may_cut(self.services.node_id, leader_id, isr, fetched_in_epoch=fetched):
            self._cut()
        self.leader = None
        self.services.behind.pop(self, None)
        self.services.incomplete.pop(self, None)
        self._adopt(leader_id, leader_epoch, partition_epoch, replicas)
        if new_epoch:
            log = self.log
            last_epoch = log.epochs.latest_epoch
            # Without any epoch nothing can be compared: what lies above the high watermark may be anyone's.
            offset = log.log_end_offset if last_epoch >= 0 else log.high_watermark
            self.follower = PartitionFollower(leader_epoch, offset, last_epoch, backoff_max_ms)
            self.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return new_epoch

    def _forget_verifications(self) -> None:
        if self.verification is not None:
            self.verification.clear()

    def _adopt(self, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...]) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas

    # Damage.

    @property
    def is_damaged(self) -> bool:
        return self.damaged_from != UNDAMAGED

    def damaged(self, offset: int) -> bool:
        """The records from ``offset`` on are not what was written; False if that was known."""
        offset = max(offset, self.log.log_start_offset)
        if self.is_damaged and self.damaged_from <= offset:
            return False
        self.damaged_from = offset
        return True

    def _cut(self) -> None:
        end = self.log.log_end_offset
        self.log.truncate_to(self.damaged_from)
        self.damaged_from = UNDAMAGED
        logger.warning("%s is cut from %d to %d, to be fetched anew", self, end, self.log.log_end_offset)

    def retire(self, error: ErrorCode) -> None:
        """This broker hosts it no longer, or cannot: everyone who waits is told."""
        self.usable = False
        self.leader = self.follower = None
        self.services.behind.pop(self, None)
        self.services.incomplete.pop(self, None)
        self.fail_waiters(error)

    def configure(self, config: LogConfig, now_ms: int) -> None:
        """The topic's settings changed."""
        self.log.configure(config)
        leader = self.leader
        if leader is not None:
            leader.set_min_insync_replicas(config.min_insync_replicas)
            self.advance(leader, now_ms)

    def must_prepare(self, records: memoryview) -> bool:
        """Whether the batch has to go through `prepare`: a thread is to look at it, or it must not overtake one."""
        intake = self.intake
        return (intake is not None and intake.is_busy) or is_heavy(records, self.log.config)

    def prepare(self, records: memoryview, wall_ms: int, on_ready: OnPrepared) -> None:
        """Has a thread prepare a copy of the batch, and calls ``on_ready`` when it is its turn to be written."""
        if self.intake is None:
            self.intake = Intake(self.services.preparers)
        self.intake.submit(records, self.log.config, wall_ms, on_ready)

    def require_epoch(self, epoch: int) -> None:
        """Raises KafkaError if the peer lives in another leader epoch than we do. -1: it does not say."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self} is in leader epoch {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self} knows leader epoch {self.leader_epoch} only")

    # Writing.

    def append(
        self, records: memoryview, acks: int, wall_ms: int, now_ms: int, write: "Write | None" = None
    ) -> AppendInfo:
        """Writes one batch as the leader. ``records`` is stamped in place and not kept. Raises KafkaError.

        A DecompressionError that `is_size` says that it has to go through the intake, an UnverifiedError that the coordinator
        of its transaction is to be asked first. ``write``: as the log takes it, where it is no client's that just came.
        """
        leader = self.leader
        if leader is None:
            raise self._not_leading()
        if acks == ACKS_ALL and not leader.has_enough_in_sync():
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(leader.committed_isr)} replicas in sync, {leader.required_in_sync} are required",
            )
        if write is not None:
            info = write(records, leader.epoch, wall_ms)
        else:
            info = self.log.append_as_leader(records, leader.epoch, wall_ms, inflated_bytes_max=LIGHT_BYTES_MAX)
        if not info.duplicate:
            stable = not self.log.must_sync
            if leader.appended(info.last_offset + 1, now_ms, stable=stable):
                self._committed(leader)
            else:
                self.services.behind[self] = None
            if self.watches.end:
                self.watches.touch(self.watches.end)
            if not stable:
                self.services.durability.follow(self.log, self._stable)
        return info

    def append_prepared(
        self, batch: bytearray, header: BatchHeader, acks: int, wall_ms: int, now_ms: int
    ) -> AppendInfo:
        """`append` for a batch that went through the intake, and is not checked again."""

        def write(view: memoryview, epoch: int, wall_ms: int) -> AppendInfo:
            return self.log.append_prepared(view, header, epoch, wall_ms)

        return self.append(memoryview(batch), acks, wall_ms, now_ms, write)

    def append_own(
        self,
        batch: bytearray,
        leader_epoch: int,
        wall_ms: int,
        now_ms: int,
        on_done: OnCommitted,
        transaction_version: int = 0,
    ) -> OwnAppend:
        """Writes a batch that this broker made itself, with acks=all. Raises KafkaError if nothing was written: as `append` does,
        NOT_LEADER_OR_FOLLOWER too when another epoch than ``leader_epoch`` has begun. ``transaction_version``: of a marker.

        ``on_done`` is called once, perhaps before this returns: NONE when the records are committed,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND when they are and fewer replicas than ``min.insync.replicas`` have them. With
        NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR nobody knows: the next leader may have them.
        """
        leader = self.leader
        if leader is None or leader.epoch != leader_epoch:
            raise self._not_leading()

        def write(view: memoryview, epoch: int, wall_ms: int) -> AppendInfo:
            return self.log.append_own(view, epoch, wall_ms, transaction_version=transaction_version)

        info = self.append(memoryview(batch), ACKS_ALL, wall_ms, now_ms, write)
        if self.verification is not None and not info.duplicate:
            header = read_header(batch)
            if header.is_control:
                self.verification.ended(header.producer_id, header.producer_epoch, transaction_version)
            else:
                self.verification.appended(header.producer_id)
        waiter = OwnAppend(info, on_done)
        if leader.high_watermark > info.last_offset:
            waiter.settle(0, outcome(leader))
        else:
            self.produce_waiters.wait_for(info.last_offset + 1, waiter, 0)
        return waiter

    def _not_leading(self) -> KafkaError:
        if not self.usable:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {self} failed")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is led by {self.leader_id}")

    @property
    def must_sync(self) -> bool:
        """Whether a record counts only once it is on stable storage."""
        return self.log.must_sync

    def _stable(self, offset: int) -> None:
        leader = self.leader
        if leader is None:
            return
        if leader.synced(offset, self.services.now_ms()):
            self._committed(leader)
        self.durable_waiters.reached(offset, ErrorCode.NONE)

    def has_committed(self, last_offset: int) -> bool:
        """Whether acks=all may be told at once, and nothing but success."""
        leader = self.leader
        return leader is not None and leader.high_watermark > last_offset and leader.had_enough_in_sync()

    def fail_waiters(self, error: ErrorCode) -> None:
        waiters = (*self.produce_waiters, *self.durable_waiters, *self.delete_waiters)
        self.produce_waiters.clear()
        self.durable_waiters.clear()
        self.delete_waiters = ()
        for _, parked, place in waiters:
            parked.settle(place, error)
        self.watches.touch_all()

    # Followers.

    def feeds_throttled(self, broker_id: int) -> bool:
        """Whether what that follower is given counts for the throttle of this leader."""
        leader, config = self.leader, self.log.config
        return (
            leader is not None
            and broker_id not in leader.committed_isr
            and names_replica(config.leader_replication_throttled_replicas, self.index, self.services.node_id)
        )

    @property
    def fetches_throttled(self) -> bool:
        """Whether what this follower fetches counts for its throttle: it is one that catches up."""
        follower, log = self.follower, self.log
        return (
            follower is not None
            and not 0 <= follower.leaders_high_watermark <= log.log_end_offset
            and names_replica(log.config.follower_replication_throttled_replicas, self.index, self.services.node_id)
        )

    def follower_fetched(
        self,
        broker_id: int,
        broker_epoch: int,
        offset: int,
        contact: FollowerContact | None,
        now_ms: int,
        log_start_offset: int = -1,
    ) -> None:
        """A follower asked for records from ``offset`` on: it has all before, down to ``log_start_offset``.

        Raises KafkaError if it may not ask.
        """
        leader = self.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is led by {self.leader_id}")
        if leader.knows_newer_life_of(broker_id, broker_epoch):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has registered anew since")
        replica = leader.fetched(broker_id, broker_epoch, offset, contact, now_ms)
        if replica is None:
            # Perhaps assigned a moment ago, and we do not know yet: this error makes it ask again.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {broker_id} is no replica of {self}")
        if offset > leader.high_watermark and leader.advance(now_ms):
            self._committed(leader)
        if log_start_offset != replica.log_start_offset:
            replica.log_start_offset = log_start_offset
            if self.delete_waiters:
                self._settle_deleted()
        consider_expand(self, broker_id)

    def low_watermark(self) -> int:
        """Where the log begins on every live replica; -1 where that is not known, and when this broker does not lead."""
        return self.leader.low_watermark(self.log.log_start_offset) if self.leader is not None else -1

    def _settle_deleted(self) -> None:
        low_watermark, waiters = self.low_watermark(), self.delete_waiters
        self.delete_waiters = [each for each in waiters if each[0] > low_watermark]
        for offset, parked, place in waiters:
            if offset <= low_watermark:
                parked.settle(place, ErrorCode.NONE)

    def doubts(self, broker_id: int, offset: int) -> bool:
        """Whether a follower asks again for what it was given: it may have refused it (`ReplicaState.asks_again`)."""
        replica = self.leader.replicas.get(broker_id) if self.leader is not None else None
        return replica is not None and replica.asks_again(offset)

    def served(self, broker_id: int, offset: int) -> None:
        """A follower is given records from ``offset`` on."""
        replica = self.leader.replicas.get(broker_id) if self.leader is not None else None
        if replica is not None:
            replica.served_offset = offset

    def isr_changed(self, now_ms: int) -> None:
        """The leader's ISR was altered: records may be committed by it, and another replica may be next."""
        leader = self.leader
        if leader is None:
            return
        self.partition_epoch = max(self.partition_epoch, leader.partition_epoch)
        note_isr(self)
        retry_joins(self, now_ms)

    # Committing.

    def advance(self, leader: PartitionLeader, now_ms: int) -> None:
        """Commits what can be: the ISR, or time, may have let records through."""
        if leader.advance(now_ms):
            self._committed(leader)

    def _committed(self, leader: PartitionLeader) -> None:
        high_watermark = leader.high_watermark
        self.log.set_high_watermark(high_watermark)
        watches = self.watches
        if watches.commits:
            watches.touch(watches.commits)
        if watches.news:
            watches.tell_in_passing()
        if self.produce_waiters:
            self.produce_waiters.reached(high_watermark, outcome(leader))

    def learn_high_watermark(self, leaders_high_watermark: int) -> None:
        """The follower's part of the rule, from a fetch response."""
        log = self.log
        offset = follower_high_watermark(log.high_watermark, leaders_high_watermark, log.log_end_offset)
        if offset != log.high_watermark:
            log.set_high_watermark(offset)
            if self.watches.commits:
                self.watches.touch(self.watches.commits)
