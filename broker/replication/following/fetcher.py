"""The followers' shell: fetches the partitions that another broker leads, and performs what the deciders say.

One connection and one incremental session a leader. A request names the partitions whose position changed and nothing else;
records go from the receive buffer to the log. The next request leaves when the answer before is written: it is what tells
the leader that we have the records.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from ottla.broker.fetch_tuples import INDEX, NO_HIGH_WATERMARK, RECORDS, FetchedPartition, FetchPartition
from ottla.broker.replication.decisions.follower import (
    Append,
    BeginAt,
    Delay,
    Fail,
    FetchState,
    FindOffsets,
    Instruction,
    PartitionFollower,
    RestartAt,
    TruncateTo,
)
from ottla.broker.replication.decisions.follower_session import FollowerSession, Key
from ottla.broker.replication.decisions.lately import Lately
from ottla.broker.replication.decisions.throttle import ReplicationThrottle
from ottla.broker.replication.decisions.truncation import Diverging
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.following.leader import FetchRequest, OpenLeader
from ottla.broker.replication.following.taking_in import begin_at, look_for_missed_end
from ottla.broker.replication.following.truncating import Truncations
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.throttling import fetches_throttled
from ottla.broker.replication.traffic import Traffic
from ottla.log.errors import StorageError
from ottla.runtime.errors import KafkaError
from ottla.runtime.identifiers import ZERO_ID
from ottla.runtime.seldom import is_told
from ottla.runtime.timers import LoopTimers

TOLD_LOG_START: Final = 4
"""Where a `FetchPartition` has the follower's log start."""

IN_FLIGHT_MAX = 2
"""One that waits at the leader for records, and one that tells of partitions that came meanwhile."""

logger = logging.getLogger(__name__)


class FetcherSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's ``replica.*`` settings; sizes in bytes, times in ms."""

    node_id: int
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes: int = 1 << 20
    response_bytes: int = 10 << 20
    backoff_ms: int = 1_000


class LeaderFetcher:
    """Everything this broker follows from one leader."""

    def __init__(
        self,
        leader_id: int,
        settings: FetcherSettings,
        timers: LoopTimers,
        durability: Durability,
        broker_epoch: Callable[[], int],
        traffic: Traffic,
        truncations: Truncations,
        lost: Lately,
        open_leader: OpenLeader,
        throttle: ReplicationThrottle,
    ) -> None:
        self.leader_id = leader_id
        self._settings = settings
        self._timers = timers
        self._durability = durability
        self._broker_epoch = broker_epoch
        self._traffic = traffic
        self._truncations = truncations
        self._lost = lost
        self._throttle = throttle
        self._session = FollowerSession()
        self._followed: dict[Key, Partition] = {}
        self._leader = open_leader(leader_id, self._on_up, self._on_lost)
        self._in_flight = 0
        self._sending = self._taking = False
        self._closed = False

    @property
    def is_idle(self) -> bool:
        return not self._followed

    # What the replica manager calls.

    def add(self, partition: Partition) -> None:
        """Follows the partition from where its `PartitionFollower` stands."""
        key = (partition.topic_id, partition.index)
        self._followed[key] = partition
        self._ask(key, partition)

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        if self._followed.pop(key, None) is not None:
            self._session.remove(key)

    def move(self, address: tuple[str, int] | None) -> None:
        """The leader is to be reached at ``address`` from now on; None: nobody knows where it is."""
        if self._leader.move(address):
            self._begin_anew()
            self._send_soon()

    def notice_end(self) -> None:
        """Knows that the leader closed the connection before the loop comes to it."""
        if self._leader.has_ended():
            self._lost.note(self.leader_id, self._timers.now_ms())

    def close(self) -> None:
        """What is under way for those that it followed, a cut that waits its turn, is wanted no more."""
        self._closed = True
        self._followed.clear()
        self._leader.close()

    # Connection.

    def _on_up(self) -> None:
        self._lost.forget(self.leader_id)
        logger.info("Following %d partitions of broker %d", len(self._followed), self.leader_id)
        self._send_soon()

    def _on_lost(self, by_leader: bool) -> None:
        if by_leader:
            self._lost.note(self.leader_id, self._timers.now_ms())
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing comes any more of what the leader was asked."""
        self._taking = False
        self._in_flight = 0
        self._session.reset()
        self._ask_again_for_offsets()

    def _ask_again_for_offsets(self) -> None:
        """Whoever was looking for the leader's offsets over the link that is gone will not be answered."""
        for key, partition in self._followed.items():
            follower = partition.follower
            if follower is not None and follower.state is FetchState.FINDING_OFFSETS:
                self._delay(key, partition, follower, follower.delay())

    # Requests.

    def _ask(self, key: Key, partition: Partition) -> None:
        follower = partition.follower
        if follower is None or follower.state is not FetchState.FETCHING:
            return
        if self._is_held_back(key, partition, follower):
            return
        if partition.must_sync and partition.log.recovery_point < follower.fetch_offset:
            # To fetch from there would acknowledge what a power cut could take: it waits until that is synced, whether it was written
            # just now, under another leader or before a hard stop.
            self._ask_when_stable(key, partition, follower)
            return
        self._session.put(key, self._wanted(partition, follower))
        self._send_soon()

    def _is_held_back(self, key: Key, partition: Partition, follower: PartitionFollower) -> bool:
        """Whether the throttle keeps the partition out for a while."""
        throttle = self._throttle
        if not throttle.is_on or not fetches_throttled(partition):
            return False
        wait_ms = throttle.wait_ms(self._timers.now_ms())
        if wait_ms:
            self._delay(key, partition, follower, Delay(wait_ms))
            self._session.postpone(key)
        return wait_ms > 0

    def _wanted(self, partition: Partition, follower: PartitionFollower) -> FetchPartition:
        return (
            partition.index,
            follower.leader_epoch,
            follower.fetch_offset,
            follower.last_fetched_epoch,
            partition.log.log_start_offset,
            self._partition_bytes(partition),
            ZERO_ID,
            NO_HIGH_WATERMARK,
        )

    def _partition_bytes(self, partition: Partition) -> int:
        """What is throttled comes by the second's worth."""
        most, throttle = self._settings.partition_bytes, self._throttle
        return min(most, max(1, throttle.rate)) if throttle.is_on and fetches_throttled(partition) else most

    def _send_soon(self) -> None:
        """Partitions come in bursts, from the metadata log: one request names them all."""
        if not self._sending and not self._closed:
            self._sending = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._sending = False
        if self._closed:
            return
        if not self._leader.is_up:
            self._leader.connect()
            return
        if not self._session.partitions or self._in_flight >= IN_FLIGHT_MAX or self._taking:
            return
        if self._in_flight and not (self._session.is_incremental and self._session.has_changes):
            return
        self._request()

    def _request(self) -> None:
        wait_ms = self._session.wait_ms(self._settings.max_wait_ms)
        plan = self._session.next_request()
        number = self._session.number
        topics: dict[bytes, list[FetchPartition]] = {}
        for (topic_id, _), wanted in plan.partitions.items():
            topics.setdefault(topic_id, []).append(wanted)
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in plan.forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        request = FetchRequest(
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            partitions=list(topics.items()),
            forgotten=list(forgotten.items()),
            broker_epoch=self._broker_epoch(),
            max_wait_ms=wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.response_bytes,
        )
        self._in_flight += 1
        self._leader.fetch(request, partial(self._answered, number))

    # Answers.

    def _answered(
        self,
        number: int,
        error: int,
        session_id: int,
        topics: Sequence[tuple[bytes, Sequence[FetchedPartition]]],
    ) -> Iterator[int]:
        """Takes an answer in, one partition a step. Between two steps anything may become of those that follow; each is looked at in its own."""
        self._in_flight -= 1
        alive = self._session.answered(error, session_id)
        if error and alive:
            self._leader.break_off(f"it answered a Fetch with error {error}")
            return
        self._leader.worked()
        self._taking = True  # what the next request says of those that are not taken in yet would be old
        for topic_id, partitions in topics:
            for answer in partitions:
                self._take(number, (topic_id, answer[INDEX]), answer)
                yield len(answer[RECORDS] or b"")
        self._taking = False
        if alive or not self._in_flight:
            self._send()

    def _take(self, number: int, key: Key, answer: FetchedPartition) -> None:
        partition = self._followed.get(key)
        asked = self._session.asked(key, number)
        if partition is None or asked is None or partition.follower is None:
            return
        follower = partition.follower
        _, leader_epoch, offset, _, _, _, _, _ = asked
        if not follower.expects(offset, leader_epoch):
            return
        _, error, high_watermark, stable, log_start, _, _, records, parted, _, _ = answer
        log = partition.log
        diverging = Diverging(*parted) if parted is not None else None
        instruction = follower.answered(
            error, high_watermark, log_start, diverging, log.log_end_offset, log.end_offset_for_epoch
        )
        self._perform(key, partition, follower, instruction, records or b"")
        if log.gaps_allowed and log.producers.first_unstable_offset is not None and isinstance(instruction, Append):
            look_for_missed_end(partition, stable, instruction)

    def _perform(
        self,
        key: Key,
        partition: Partition,
        follower: PartitionFollower,
        instruction: Instruction,
        records: bytes | bytearray | memoryview = b"",
    ) -> None:
        try:
            self._carry_out(key, partition, follower, instruction, records)
        except Exception as error:  # noqa: BLE001 - it is this partition's, and logged: the others are fetched on
            self._failed(key, partition, follower, error)

    def _failed(self, key: Key, partition: Partition, follower: PartitionFollower, error: Exception) -> None:
        """A batch that is not what its CRC says may be whole when fetched again, and a full disk may have room by then."""
        tries = follower.retries + 1
        if is_told(tries):
            surprise = None if tries > 1 or isinstance(error, KafkaError | OSError) else error
            logger.warning("Could not replicate %s (try %d): %s", partition, tries, error, exc_info=surprise)
        if isinstance(error, StorageError):
            partition.services.on_no_room(partition)
        log = partition.log
        self._delay(key, partition, follower, follower.interrupted(log.log_end_offset, log.epochs.latest_epoch))

    def _carry_out(
        self,
        key: Key,
        partition: Partition,
        follower: PartitionFollower,
        instruction: Instruction,
        records: bytes | bytearray | memoryview,
    ) -> None:
        match instruction:
            case Append():
                self._append(key, partition, follower, instruction, records)
            case TruncateTo():
                logger.info("Truncating %s to %d", partition, instruction.offset)
                self._cut(key, partition, follower, instruction)
            case RestartAt():
                logger.info("Restarting %s at %d", partition, instruction.offset)
                self._cut(key, partition, follower, instruction)
            case BeginAt():
                partition.log.advance_log_start(instruction.offset)
                self._moved(key, partition, follower)
            case FindOffsets():
                self._session.remove(key)
                self._find_offsets(key, partition, follower)
            case Delay():
                self._delay(key, partition, follower, instruction)
            case Fail():
                logger.info("Stopped fetching %s: %s", partition, instruction.reason)
                self._session.remove(key)

    def _append(
        self,
        key: Key,
        partition: Partition,
        follower: PartitionFollower,
        instruction: Append,
        records: bytes | bytearray | memoryview,
    ) -> None:
        log = partition.log
        begin_at(log, instruction)  # first: on a full disk it makes the room
        if records:
            if self._throttle.is_on and fetches_throttled(partition):
                self._throttle.passed(len(records), self._timers.now_ms())
            log.append_as_follower(records, follower.leader_epoch)
            self._traffic.replication_bytes_in += len(records)
            follower.appended(log.log_end_offset, log.epochs.latest_epoch)
        partition.learn_high_watermark(instruction.high_watermark)
        begin_at(log, instruction)
        follower.succeeded()
        if records and partition.must_sync:
            self._session.remove(key)
            self._ask(key, partition)
        elif records and self._is_held_back(key, partition, follower):
            return
        elif records or self._begins_elsewhere(key, log.log_start_offset):
            self._session.put(key, self._wanted(partition, follower))

    def _begins_elsewhere(self, key: Key, log_start_offset: int) -> bool:
        """Whether the leader has to hear where the log begins: somebody may wait for it (DeleteRecords)."""
        wanted = self._session.partitions.get(key)
        return wanted is not None and wanted[TOLD_LOG_START] != log_start_offset

    def _ask_when_stable(self, key: Key, partition: Partition, follower: PartitionFollower) -> None:
        def stable(offset: int) -> None:
            if not self._is_current(key, partition, follower):
                return
            if partition.log.log_end_offset < follower.fetch_offset:
                self._moved(key, partition, follower)  # it was read anew
            elif offset >= follower.fetch_offset:
                self._ask(key, partition)

        self._session.postpone(key)
        self._durability.follow(partition.log, stable)

    def _is_current(self, key: Key, partition: Partition, follower: PartitionFollower) -> bool:
        return self._followed.get(key) is partition and partition.follower is follower

    def _cut(self, key: Key, partition: Partition, follower: PartitionFollower, cut: TruncateTo | RestartAt) -> None:
        self._session.remove(key)

        def done(error: Exception | None) -> None:
            if error is None:
                self._moved(key, partition, follower)
            else:
                self._failed(key, partition, follower, error)

        how = self._truncations.cut if isinstance(cut, TruncateTo) else self._truncations.restart
        how(partition.log, cut.offset, lambda: self._is_current(key, partition, follower), done)

    def _moved(self, key: Key, partition: Partition, follower: PartitionFollower) -> None:
        follower.truncated(partition.log.log_end_offset, partition.log.epochs.latest_epoch)
        self._ask(key, partition)

    def _delay(self, key: Key, partition: Partition, follower: PartitionFollower, delay: Delay) -> None:
        self._session.remove(key)

        def again() -> None:
            if self._is_current(key, partition, follower):
                self._ask(key, partition)

        self._timers.call_later_ms(delay.delay_ms, again)

    def _find_offsets(self, key: Key, partition: Partition, follower: PartitionFollower) -> None:
        def found(offsets: tuple[int, int] | None) -> None:
            if not self._is_current(key, partition, follower):
                return
            if offsets is None:
                self._delay(key, partition, follower, follower.delay())
                return
            logger.info("%s is out of the leader's range %d..%d", partition, *offsets)
            log = partition.log
            instruction = follower.offsets_found(*offsets, log.log_end_offset, log.high_watermark)
            self._perform(key, partition, follower, instruction)

        if self._leader.is_up:
            self._leader.find_offsets(partition.topic, partition.index, follower.leader_epoch, found)
        else:
            self._delay(key, partition, follower, follower.delay())
