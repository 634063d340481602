"""A snapshot of the producers from before all batches that are left: newer ones went with a power cut, then retention took the rest.

What was open in it may have ended since; its marker is gone with the batches in between.
"""

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.producers import snapshot
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

DIRECTORY = "/data/flights-0"
NOW_MS = 1_700_000_000_000


def open_log(disk: SimulatedDisk, log_start_offset: int = 0) -> Log:
    return Log.open(
        disk, DIRECTORY, TopicPartition("flights", 0), LogConfig(), now_ms=NOW_MS, log_start_offset=log_start_offset
    )


def put(log: Log, producer_id: int, sequence: int = 0) -> None:
    offset = log.log_end_offset
    batch = encode_batch(
        [Record(offset, NOW_MS, b"k", b"v")], base_offset=offset, leader_epoch=0,
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True,
    )  # fmt: skip
    log.append_as_follower(bytes(batch))


def end(log: Log, producer_id: int) -> None:
    batch = end_marker_batch(
        EndMarker(True, 0), producer_id=producer_id, producer_epoch=0, timestamp=NOW_MS,
        base_offset=log.log_end_offset, leader_epoch=0,
    )  # fmt: skip
    log.append_as_follower(bytes(batch))
    log.roll()


def left_of(disk: SimulatedDisk, log_start_offset: int) -> Log:
    """Producer 7 ends what is open in the snapshot of offset 2; producer 8 ends nothing, and goes on at 4."""
    log = open_log(disk)
    put(log, 7)
    put(log, 8)
    log.roll()
    end(log, 7)
    put(log, 9)
    put(log, 8, 1)
    end(log, 9)
    for offset in snapshot.offsets(disk, DIRECTORY)[1:]:
        disk.unlink(snapshot.path_of(DIRECTORY, offset))
    log.abandon()
    log = open_log(disk)
    log.set_high_watermark(6)
    log.advance_log_start(log_start_offset)
    log.delete_old_segments(NOW_MS)
    assert snapshot.offsets(disk, DIRECTORY) == [2]
    log.abandon()
    log = open_log(disk, log_start_offset)
    log.set_high_watermark(6)
    return log


def test_what_was_open_before_the_batches_that_are_left_holds_back_no_reader() -> None:
    log = left_of(SimulatedDisk(Platter.seeded(1)), 6)
    assert log.segments[0].base_offset == 6
    assert log.last_stable_offset == 6
    put(log, 5)
    end(log, 5)
    log.set_high_watermark(8)
    assert log.last_stable_offset == 8


def test_what_is_open_goes_by_the_batches_that_are_left() -> None:
    log = left_of(SimulatedDisk(Platter.seeded(1)), 3)
    assert log.segments[0].base_offset == 3
    assert log.last_stable_offset == 4
    end(log, 8)
    log.set_high_watermark(7)
    assert log.last_stable_offset == 7
