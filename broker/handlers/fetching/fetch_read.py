"""One partition's part of a Fetch: who may read it, up to where, and what a follower's fetch says about the follower.

Source: ReplicaManager.readFromLog and Partition.fetchRecords; kraft.md 3.4.
"""

import msgspec

from ottla.broker.fetch_tuples import FetchedPartition, FetchPartition
from ottla.broker.replication.decisions.fetch_session import CONSUMER_ID
from ottla.broker.replication.decisions.replica import FollowerContact
from ottla.broker.replication.decisions.truncation import Diverging, divergence, divergence_from_deleted
from ottla.broker.replication.feeding import doubted_bytes, follower_fetched, served
from ottla.broker.replication.partition import Partition
from ottla.log.batch import holds_records
from ottla.log.results import LogRead
from ottla.runtime.errors import ErrorCode, KafkaError

READ_COMMITTED = 1
FIRST_FROM_FOLLOWERS = 11
NO_RECORDS = b""
PLENTY = 2**31
EMPTY_READS_MAX = 200
"""A read is of one segment, and older versions left an empty batch in each: so many take a few milliseconds of the loop."""


class Reader(msgspec.Struct, frozen=True):
    """Who fetches, and how."""

    version: int
    replica_id: int = CONSUMER_ID
    replica_epoch: int = -1
    isolation: int = 0

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0


def locate(partition: Partition, wanted: FetchPartition, reader: Reader) -> Diverging | None:
    """Checks that the reader may read where it wants to; where its log left ours if it did. Raises KafkaError."""
    _, epoch, offset, last_fetched_epoch, _, _, _, _ = wanted
    if not partition.usable:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {partition} failed")
    partition.require_epoch(epoch)
    if partition.leader is None and (reader.is_follower or reader.version < FIRST_FROM_FOLLOWERS):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by {partition.leader_id}")
    log = partition.log
    end = log.log_end_offset
    if last_fetched_epoch >= 0 and not (last_fetched_epoch == log.epochs.latest_epoch and offset <= end):
        diverging = _divergence(partition, wanted, reader)
        if diverging is not None and diverging.epoch >= 0:
            return diverging
        if diverging is not None:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no epoch {last_fetched_epoch}")
    if not log.log_start_offset <= offset <= end:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} spans {log.log_start_offset}..{end}, not {offset}"
        )
    return None


def _divergence(partition: Partition, wanted: FetchPartition, reader: Reader) -> Diverging | None:
    _, _, offset, last_fetched_epoch, follower_start, _, _, _ = wanted
    log, leader = partition.log, partition.leader
    if reader.is_follower and leader is not None and last_fetched_epoch < log.epochs.earliest_epoch:
        if leader.has_compared(reader.replica_id, reader.replica_epoch, offset):
            return None
        return divergence_from_deleted(offset, last_fetched_epoch, follower_start, log.log_start_offset)
    return divergence(offset, last_fetched_epoch, log.end_offset_for_epoch)


def limit_for(partition: Partition, reader: Reader) -> int:
    """Up to where the reader may see: followers all, consumers what is committed, or stable."""
    log = partition.log
    if reader.is_follower:
        return log.log_end_offset
    return log.last_stable_offset if reader.isolation == READ_COMMITTED else log.high_watermark


def available_bytes(partition: Partition, wanted: FetchPartition, reader: Reader) -> int:
    """How much there is, from positions and without reading; plenty if the answer cannot wait. Raises KafkaError."""
    if locate(partition, wanted, reader) is not None:
        return PLENTY
    _, _, offset, _, _, max_bytes, _, _ = wanted
    limit = limit_for(partition, reader)
    if offset >= limit:
        return 0
    found = partition.log.bytes_between(offset, limit)
    return found if found < max_bytes else PLENTY  # waiting would not make its part of the answer any larger


def read(
    partition: Partition,
    wanted: FetchPartition,
    reader: Reader,
    max_bytes: int,
    *,
    minimum_one: bool,
    wait: bool = True,
) -> tuple[FetchedPartition, bool]:
    """(the answer for one partition, whether there is more than is in it).

    At most ``max_bytes`` unless the first batch is larger and ``minimum_one``. Raises KafkaError; without ``wait`` ColdReadError too.
    """
    index, _, offset, _, _, partition_bytes, _, _ = wanted
    diverging = locate(partition, wanted, reader)
    log = partition.log
    watermark, stable, start = log.high_watermark, log.last_stable_offset, log.log_start_offset
    if diverging is not None:
        parted = (diverging.epoch, diverging.end_offset)
        return (index, 0, watermark, stable, start, None, -1, NO_RECORDS, parted, None, None), False
    limit = limit_for(partition, reader)
    aborted: list[tuple[int, int]] | None = [] if reader.isolation == READ_COMMITTED else None
    if offset >= limit or (max_bytes <= 0 and not minimum_one):
        return (index, 0, watermark, stable, start, aborted, -1, NO_RECORDS, None, None, None), offset < limit
    size = max(0, min(max_bytes, partition_bytes))
    found = log.read(offset, size, limit, minimum_one=minimum_one, wait=wait)
    if not reader.is_follower and found.next_offset < limit and not holds_records(found.data):
        found = _past_empty_batches(partition, found, size, limit, minimum_one=minimum_one, wait=wait)
    data = found.data
    if not data:
        # Nothing, though one batch was to be given: what lies below the limit was compacted away.
        return (index, 0, watermark, stable, start, aborted, -1, NO_RECORDS, None, None, None), not minimum_one
    if reader.is_follower:
        served(partition, reader.replica_id, offset, len(data))
    if aborted is not None:
        # Of these records only: with all up to the limit each answer of a consumer that is far behind would repeat the whole index.
        overlapping = log.aborted_transactions(offset, found.next_offset)
        aborted = [(each.producer_id, each.first_offset) for each in overlapping]
    return (index, 0, watermark, stable, start, aborted, -1, data, None, None, None), found.next_offset < limit


def _past_empty_batches(
    partition: Partition, found: LogRead, size: int, limit: int, *, minimum_one: bool, wait: bool
) -> LogRead:
    """What lies behind batches that compaction left without records, or the last of these if there is nothing else up to the limit.

    An answer of nothing else makes clients believe that a record was too large for it.
    """
    for _ in range(EMPTY_READS_MAX):
        further = partition.log.read(found.next_offset, size, limit, minimum_one=minimum_one, wait=wait)
        if not further.data:
            # Compacted away up to the limit; or it does not fit, and comes when it is its turn to be larger.
            return found if minimum_one else further
        found = further
        if found.next_offset >= limit or holds_records(found.data):
            break
    return found


def note_follower(
    partition: Partition, wanted: FetchPartition, reader: Reader, contact: FollowerContact | None, now_ms: int
) -> bool:
    """A follower's request named this partition: takes in how far it is. False if its log has to be cut first.

    Raises KafkaError if it may not fetch, DamagedLogError if it asks again for records that it cannot have taken.
    """
    if locate(partition, wanted, reader) is not None:
        return False
    _, _, offset, _, log_start_offset, _, _, _ = wanted
    follower_fetched(partition, reader.replica_id, reader.replica_epoch, offset, contact, now_ms, log_start_offset)
    doubted = doubted_bytes(partition, reader.replica_id, offset)
    if doubted:  # no more than that: it is in memory still, and a crowd of partitions may come again in one request
        partition.log.recheck(offset, doubted)
    return True


def refused(index: int, error: int, leader: tuple[int, int] | None = None) -> FetchedPartition:
    """The answer for a partition that cannot be read."""
    return (index, error, -1, -1, -1, None, -1, NO_RECORDS, None, leader, None)
