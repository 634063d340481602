"""A replica was away while a transaction that it has open was ended, and compaction took the end from its leader's log.

Nothing that it fetches ends the transaction any more. What it has of it the leader has no longer: it was aborted, or is superseded.
"""

import pytest

from ottla.log.batch import headers
from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.worker import Outcome
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.testing.replication.cluster import Cluster, run

WEEK_MS = 7 * 24 * 3_600_000
PRODUCER = 7


def put(cluster: Cluster, key: bytes, value: bytes, producer_id: int = -1) -> None:
    producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    more = producer if producer_id >= 0 else {}
    cluster.brokers[1].append_own(encode_batch([Record(0, 1, key, value)], **more))  # type: ignore[arg-type]  # by name, of several types


def end(cluster: Cluster, producer_id: int, *, is_commit: bool) -> None:
    cluster.brokers[1].append_own(
        end_marker_batch(EndMarker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=1)
    )


def compact(cluster: Cluster, broker: int) -> None:
    """Until nothing is left of a transaction whose producer is forgotten."""
    node = cluster.brokers[broker]
    log, disk = node.log(), node.log().disk
    cleaner = LogCleaner(disk, CleanerSettings(), CleanedOffsets(disk))
    log.producers.expire(1, WEEK_MS)
    log.producers.expire(1 + WEEK_MS, WEEK_MS)
    for _ in range(3):
        node.run(log.roll)
        put(cluster, b"last", b"value")
        node.run(log.roll)
        task = cleaner.next_task([log], 1)
        assert task is not None
        assert cleaner.install(task, Outcome(result=clean(disk, task.job)))


def values(cluster: Cluster, broker: int) -> list[int]:
    log = cluster.brokers[broker].log()
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        found += [header.base_offset for _, header in headers(read.data) if header.records_count]
        offset = read.next_offset
    return found


async def away(cluster: Cluster, *, is_commit: bool) -> None:
    """Broker 3 has the transaction open at offset 1 and is away until nothing of it is left in its leader's log."""
    await cluster.start(cleanup_policy="compact", delete_retention_ms="0", min_cleanable_dirty_ratio="0")
    put(cluster, b"a", b"first")
    put(cluster, b"b", b"of a transaction", PRODUCER)
    await cluster.until(lambda: cluster.brokers[3].log().log_end_offset == 2)
    await cluster.until(lambda: cluster.brokers[1].log().high_watermark == 2)
    cluster.brokers[3].kill()
    cluster.elect(1, (1, 2))
    end(cluster, PRODUCER, is_commit=is_commit)
    put(cluster, b"b", b"later")
    await cluster.until(lambda: cluster.brokers[1].log().last_stable_offset == 4)
    compact(cluster, 1)
    await cluster.until(lambda: cluster.brokers[1].log().high_watermark == cluster.brokers[1].log().log_end_offset)
    assert not {1, 2} & {*values(cluster, 1)}


@pytest.mark.parametrize("is_commit", [False, True])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_replica_that_missed_how_a_transaction_ended_holds_back_no_reader_when_it_leads(
    is_commit: bool, is_known: bool
) -> None:
    """``is_known``: by how long it was away. It may have lived, and not have reached its leader."""

    async def scenario(cluster: Cluster) -> None:
        await away(cluster, is_commit=is_commit)
        if not is_known:
            cluster.set_topic(delete_retention_ms="86400000")
        await cluster.brokers[3].restart()
        await cluster.until(lambda: 3 in cluster.isr() and values(cluster, 3) == values(cluster, 1))
        log = cluster.brokers[3].log()
        await cluster.until(lambda: log.last_stable_offset == log.log_end_offset)
        assert cluster.damage_reports == (not is_known)

    run(scenario)


def test_what_a_replica_has_of_an_aborted_transaction_is_not_committed_by_its_producers_next() -> None:
    async def scenario(cluster: Cluster) -> None:
        await away(cluster, is_commit=False)
        put(cluster, b"c", b"of the next", PRODUCER)
        end(cluster, PRODUCER, is_commit=True)
        await cluster.brokers[3].restart()
        await cluster.until(lambda: 3 in cluster.isr())
        await cluster.until(
            lambda: cluster.brokers[3].log().last_stable_offset == cluster.brokers[1].log().log_end_offset
        )
        assert values(cluster, 3) == values(cluster, 1)

    run(scenario)


def test_a_replica_that_has_yet_to_fetch_how_a_transaction_ended_waits_for_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(cleanup_policy="compact")
        logs = [cluster.brokers[number].log() for number in (1, 2, 3)]
        for producer_id in range(20):
            begun = logs[0].log_end_offset
            put(cluster, b"b", b"of a transaction", producer_id)
            put(cluster, b"b", b"of another", producer_id + 100)
            end(cluster, producer_id, is_commit=False)
            await cluster.until(lambda: logs[2].log_end_offset > begun)  # noqa: B023 - waited for here
            end(cluster, producer_id + 100, is_commit=True)
        await cluster.until(lambda: all(log.last_stable_offset == 80 for log in logs))
        assert not cluster.damage_reports

    run(scenario)
