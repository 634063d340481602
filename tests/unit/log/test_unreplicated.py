"""The last stable offset of a log that was opened or cut, where a transaction's marker stands above the high watermark."""

from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

DIRECTORY = "/data/flights-0"
NOW_MS = 1_700_000_000_000
MARKER = 4
"""A record at 0, transaction [1, 3] of producer 7, and what ends it."""


def open_log(disk: SimulatedDisk, high_watermark: int, *, clean: bool) -> Log:
    return Log.open(
        disk,
        DIRECTORY,
        TopicPartition("flights", 0),
        LogConfig(),
        now_ms=NOW_MS,
        high_watermark=high_watermark,
        clean_shutdown=clean,
    )


def put(log: Log, offset: int, count: int, producer_id: int = -1) -> None:
    records = [Record(offset + i, NOW_MS, b"k", b"v") for i in range(count)]
    more = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    batch = encode_batch(records, base_offset=offset, leader_epoch=0, **(more if producer_id >= 0 else {}))  # type: ignore[arg-type]  # by name, of several types
    log.append_as_follower(bytes(batch))


def end(log: Log, offset: int, producer_id: int = 7) -> None:
    marker = end_marker_batch(
        EndMarker(True, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=NOW_MS,
        base_offset=offset,
        leader_epoch=0,
    )
    log.append_as_follower(bytes(marker))


def ended(disk: SimulatedDisk) -> Log:
    disk.make_directories(DIRECTORY)
    log = open_log(disk, 0, clean=True)
    put(log, 0, 1)
    put(log, 1, 3, 7)
    end(log, MARKER)
    return log


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Platter(Random(0)))


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_transaction_whose_marker_is_not_replicated_is_held_back_after_a_start(
    disk: SimulatedDisk, is_clean: bool
) -> None:
    """The snapshot of the end has it ended, and says no more."""
    log = ended(disk)
    log.set_high_watermark(MARKER)
    assert log.last_stable_offset == 1
    log.flush()
    log.producers.take_snapshot(disk, DIRECTORY, log.log_end_offset)
    log.close()
    log = open_log(disk, MARKER, clean=is_clean)
    assert (log.high_watermark, log.last_stable_offset) == (MARKER, 1)
    log.set_high_watermark(MARKER + 1)
    assert log.last_stable_offset == MARKER + 1


def test_a_transaction_is_held_back_after_a_start_though_its_producer_was_idle_for_long(disk: SimulatedDisk) -> None:
    """Too few replicas were in sync for a day."""
    log = ended(disk)
    log.set_high_watermark(MARKER)
    for now_ms in (NOW_MS, NOW_MS + 1000):
        log.producers.expire(now_ms, 1000)
    log.close()
    log = open_log(disk, MARKER, clean=True)
    assert log.last_stable_offset == 1
    log.set_high_watermark(MARKER + 1)
    assert log.last_stable_offset == MARKER + 1
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1


def test_a_transaction_whose_marker_is_replicated_holds_nothing_back_after_a_start(disk: SimulatedDisk) -> None:
    log = ended(disk)
    log.producers.take_snapshot(disk, DIRECTORY, log.log_end_offset)
    log.close()
    assert open_log(disk, MARKER + 1, clean=True).last_stable_offset == MARKER + 1


def test_a_transaction_whose_marker_is_not_replicated_is_held_back_after_a_cut(disk: SimulatedDisk) -> None:
    log = ended(disk)
    log.producers.take_snapshot(disk, DIRECTORY, log.log_end_offset)
    put(log, MARKER + 1, 2)
    log.set_high_watermark(MARKER)
    log.truncate_to(MARKER + 1)
    assert (log.log_end_offset, log.last_stable_offset) == (MARKER + 1, 1)


def test_one_that_is_open_is_told_from_those_that_are_not_replicated(disk: SimulatedDisk) -> None:
    log = ended(disk)
    put(log, MARKER + 1, 2, 8)
    log.producers.take_snapshot(disk, DIRECTORY, log.log_end_offset)
    log.close()
    log = open_log(disk, MARKER, clean=True)
    assert log.last_stable_offset == 1
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == MARKER + 1
