"""A hosted partition: its log, its role, and who waits on it.

The rules are the deciders'; this joins them to the log: which role it has, and how far it is committed. What a leader does beside that
has a module each: `appending.py`, `feeding.py` (followers' fetches), `joining.py` (the ISR), `acks.py`, `deleting.py`. Everything runs
on the event loop, so each call is one step that nothing interrupts.
"""

import logging
from collections.abc import Mapping, Sequence

from ottla.broker.replication.acks import outcome
from ottla.broker.replication.decisions.follower import PartitionFollower
from ottla.broker.replication.decisions.healing import may_cut, may_have_missed_ends
from ottla.broker.replication.decisions.high_watermark import follower_high_watermark
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.deleting import settle_deleted
from ottla.broker.replication.intake import Intake
from ottla.broker.replication.joining import note_isr, retry_joins
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import OffsetWaiters, ParkedRequest
from ottla.broker.replication.watches import Watches
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.producers.verification import VerificationGuards
from ottla.quorum.metadata.views import NO_LEADER
from ottla.runtime.errors import ErrorCode, KafkaError

UNDAMAGED = -1

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
        "is_in_isr",
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
        self.is_in_isr = False  # of a follower, as the metadata last said
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

    # Its role.

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
        nobody_else_led = self.leader is not None and leader_epoch == self.leader_epoch + 1
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
            stable_end_offset=log.recovery_point if log.must_sync else log.log_end_offset,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
        )
        log.silent_ms = 0
        if new_epoch:
            # Noted even before anything is written: followers must find where our epoch began.
            log.epochs.assign(leader_epoch, log.log_end_offset)
            if not nobody_else_led:
                self._forget_verifications()
        self.leader, self.follower = leader, None
        self._adopt(node_id, leader_epoch, partition_epoch, replicas)
        if new_epoch:
            self.watches.touch_all()
        note_isr(self)
        self.advance(leader, now_ms)
        if self.delete_waiters:
            settle_deleted(self)  # there may be fewer replicas to wait for
        if leader.high_watermark < leader.log_end_offset or leader.has_silent_member():
            self.services.behind[self] = None
        if leader.stable_end_offset < leader.log_end_offset:
            self.count_when_stable()
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
        elr: tuple[int, ...] = (),
    ) -> bool:
        """Follows ``leader_id`` (-1: nobody leads). True if the leader epoch is a new one: fetch anew.

        Raises StorageError: a damaged log could not be cut, or the log has to be read anew and cannot be.
        """
        if partition_epoch < self.partition_epoch:
            return False
        if self.leader is not None:
            self._resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # whatever becomes of its log
        self.log.make_whole()
        new_epoch = leader_epoch > self.leader_epoch or self.follower is None
        fetched = leader_epoch <= self.leader_epoch
        if may_cut(self.services.node_id, leader_id, (*isr, *elr), fetched_in_epoch=fetched):
            if self.is_damaged:
                self._cut()
            self._cut_open()
        if leader_id != NO_LEADER:
            self.log.silent_ms = 0  # from here on all that is written comes as it is written
        self._adopt(leader_id, leader_epoch, partition_epoch, replicas)
        self.is_in_isr = self.services.node_id in isr
        if new_epoch:
            log = self.log
            last_epoch = log.epochs.latest_epoch
            # Without any epoch nothing can be compared: what lies above the high watermark may be anyone's.
            offset = log.log_end_offset if last_epoch >= 0 else log.high_watermark
            self.follower = PartitionFollower(leader_epoch, offset, last_epoch, backoff_max_ms)
            self.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return new_epoch

    def isr_changed(self, now_ms: int) -> None:
        """The leader's ISR was altered: records may be committed by it, and another replica may be next."""
        leader = self.leader
        if leader is None:
            return
        self.partition_epoch = max(self.partition_epoch, leader.partition_epoch)
        note_isr(self)
        retry_joins(self, now_ms)

    def retire(self, error: ErrorCode) -> None:
        """This broker hosts it no longer, or cannot: everyone who waits is told."""
        self.usable = False
        self.follower = None
        self._resign(error)

    def _resign(self, error: ErrorCode) -> None:
        self.leader = None
        self.services.behind.pop(self, None)
        self.services.incomplete.pop(self, None)
        self.fail_waiters(error)

    def configure(self, config: LogConfig, now_ms: int, *, is_behind: bool = False) -> None:
        """The topic's settings changed. ``is_behind``: more is known of the partition, which it is yet to be told. Raises StorageError, when
        all has been taken but the age of the active segment."""
        leader = self.leader
        if leader is not None:
            if is_behind:
                leader.keep_min_insync_replicas()
            leader.set_min_insync_replicas(config.min_insync_replicas)
            self.advance(leader, now_ms)
        self.log.configure(config)

    def _forget_verifications(self) -> None:
        if self.verification is not None:
            self.verification.clear()

    def _adopt(self, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...]) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas

    # Damage: when it may be cut, `decisions/healing.py` says.

    @property
    def is_damaged(self) -> bool:
        """Not where the segment that was damaged went meanwhile."""
        return self.damaged_from != UNDAMAGED and self.damaged_from >= self.log.segments[0].base_offset

    def damaged(self, offset: int) -> bool:
        """The records from ``offset`` on are not what was written; False if that was known."""
        offset = max(offset, self.log.log_start_offset)
        if self.is_damaged and self.damaged_from <= offset:
            return False
        self.damaged_from = offset
        return True

    def _cut_open(self) -> None:
        log = self.log
        first_open = log.producers.first_open_offset if log.gaps_allowed else None
        if first_open is not None and may_have_missed_ends(log.silent_ms, log.config.delete_retention_ms):
            logger.info("%s is cut at %d: how what is open there ended may be gone", self, first_open)
            log.truncate_to(max(first_open, log.log_start_offset))

    def _cut(self) -> None:
        end = self.log.log_end_offset
        self.log.truncate_to(self.damaged_from)
        self.damaged_from = UNDAMAGED
        logger.warning("%s is cut from %d to %d, to be fetched anew", self, end, self.log.log_end_offset)

    # What others are told.

    def require_epoch(self, epoch: int) -> None:
        """Raises KafkaError if the peer lives in another leader epoch than we do. -1: it does not say."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self} is in leader epoch {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self} knows leader epoch {self.leader_epoch} only")

    def require_leader(self, epoch: int) -> None:
        """`require_epoch`, and that this broker leads. A disk that failed is told before both, as in Kafka."""
        if self.usable:
            self.require_epoch(epoch)
        if self.leader is None:
            raise self.not_leading()

    def not_leading(self) -> KafkaError:
        if not self.usable:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {self} failed")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is led by {self.leader_id}")

    @property
    def must_sync(self) -> bool:
        """Whether a record counts only once it is on stable storage."""
        return self.log.must_sync

    def fail_waiters(self, error: ErrorCode) -> None:
        waiters = (*self.produce_waiters, *self.durable_waiters, *self.delete_waiters)
        self.produce_waiters.clear()
        self.durable_waiters.clear()
        self.delete_waiters = ()
        for _, parked, place in waiters:
            parked.settle(place, error)
        self.watches.touch_all()

    # Committing: how far it may go is the rule of `decisions/high_watermark.py`; this tells the log, and who waits.

    def advance(self, leader: PartitionLeader, now_ms: int) -> None:
        """Commits what can be: the ISR, or time, may have let records through."""
        if leader.advance(now_ms):
            self.committed(leader)

    def committed(self, leader: PartitionLeader) -> None:
        """The leader's high watermark has moved."""
        high_watermark = leader.high_watermark
        self.log.set_high_watermark(high_watermark)
        watches = self.watches
        if watches.commits:
            watches.touch(watches.commits)
        if watches.news:
            watches.tell_in_passing()
        if self.produce_waiters:
            self.produce_waiters.reached(high_watermark, outcome(leader))

    def count_when_stable(self) -> None:
        """What the leader's own log has counts once it is on stable storage."""
        self.services.durability.follow(self.log, self._stable)

    def _stable(self, offset: int) -> None:
        leader = self.leader
        if leader is None:
            return
        if leader.synced(offset, self.services.now_ms()):
            self.committed(leader)
        self.durable_waiters.reached(offset, ErrorCode.NONE)

    def learn_high_watermark(self, leaders_high_watermark: int) -> None:
        """The follower's part of the rule, from a fetch response."""
        log = self.log
        offset = follower_high_watermark(log.high_watermark, leaders_high_watermark, log.log_end_offset)
        if offset != log.high_watermark:
            log.set_high_watermark(offset)
            if self.watches.commits:
                self.watches.touch(self.watches.commits)
