"""A snapshot of the producers in which a transaction is open whose records and end marker compaction has taken since.

The newer snapshots went: with a power cut, with damage, or because the log was cut behind the marker after an unclean election.
"""

import pytest

from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.producers import snapshot
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

DIRECTORY = "/data/flights-0"
NOW_MS = 1_700_000_000_000
SECOND = 4
WEEK_MS = 7 * 24 * 3_600_000
CONFIG = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=0, segment_bytes=700)


def open_log(disk: SimulatedDisk, recovery_point: int = 0) -> Log:
    return Log.open(disk, DIRECTORY, TopicPartition("flights", 0), CONFIG, now_ms=NOW_MS, recovery_point=recovery_point)


class Bench:
    """One log; ``cleaner`` takes away what it may."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Platter.seeded(1))
        self.disk.make_directories(DIRECTORY)
        self.log = open_log(self.disk)
        self.cleaner = LogCleaner(self.disk, CleanerSettings(), CleanedOffsets(self.disk))

    def put(self, key: str, producer_id: int = -1, sequence: int = 0, size: int = 1) -> None:
        offset = self.log.log_end_offset
        of_producer = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
            "transactional": True,
        }
        batch = encode_batch(
            [Record(offset, NOW_MS, key.encode(), b"v" * size)], base_offset=offset, leader_epoch=0,
            **(of_producer if producer_id >= 0 else {}),  # type: ignore[arg-type]  # by name, of several types
        )  # fmt: skip
        self.log.append_as_follower(bytes(batch))

    def end(self, producer_id: int, *, is_commit: bool = True) -> None:
        batch = end_marker_batch(
            EndMarker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=NOW_MS,
            base_offset=self.log.log_end_offset, leader_epoch=0,
        )  # fmt: skip
        self.log.append_as_follower(bytes(batch))

    def clean(self) -> None:
        """All that is closed, with something new behind it, so that it is due."""
        self.log.roll()
        self.put("last")
        self.log.roll()
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.flush()
        task = self.cleaner.next_task([self.log], NOW_MS)
        assert task is not None
        assert self.cleaner.install(task, Outcome(result=clean(self.disk, task.job)))
        self.cleaner.record(task)
        self.log.purge(NOW_MS + WEEK_MS)

    def take_markers(self) -> None:
        """Its producers are forgotten, and three cleanings take what is left of them."""
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.producers.expire(NOW_MS, WEEK_MS)
        assert self.log.producers.expire(NOW_MS + WEEK_MS, WEEK_MS) == 2
        for _ in range(3):
            self.clean()

    def controls(self) -> list[int]:
        """The producers of the end markers that are left."""
        return [
            header.producer_id
            for segment in self.log.segments
            for _, header in segment.walk_from(0)
            if header.is_control and header.records_count
        ]

    def reopen_with_snapshots(self, *kept: int) -> None:
        self.log.flush()
        self.log.abandon()
        for offset in snapshot.offsets(self.disk, DIRECTORY):
            if offset not in kept:
                self.disk.unlink(snapshot.path_of(DIRECTORY, offset))
        end = self.log.log_end_offset
        self.log = open_log(self.disk, self.log.recovery_point)
        assert self.log.log_end_offset == end
        self.log.set_high_watermark(end)


def held_open() -> Bench:
    """Producers 7 and 8 begin in the first segment. The second one begins at `SECOND`, with a snapshot in which both are open. What
    stays of both is too much for one."""
    bench = Bench()
    bench.put("stays", size=400)
    bench.put("a", 7)
    bench.put("b", 8)
    bench.put("c", 7, 1)
    bench.log.roll()
    bench.put("stays too", size=400)
    assert snapshot.offsets(bench.disk, DIRECTORY) == [SECOND]
    return bench


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_compaction_took_whole_holds_back_no_reader(is_commit: bool) -> None:
    bench = held_open()
    bench.end(7, is_commit=is_commit)
    bench.end(8, is_commit=is_commit)
    for key in "abc":
        bench.put(key)
    bench.take_markers()
    assert bench.controls() == []
    bench.reopen_with_snapshots(SECOND)
    assert bench.log.last_stable_offset == bench.log.log_end_offset


def test_a_transaction_of_which_compaction_left_a_part_goes_on_from_there() -> None:
    bench = held_open()
    bench.end(7)
    bench.end(8)
    bench.put("a")
    bench.put("b")
    bench.take_markers()
    assert bench.controls() == [7]
    bench.reopen_with_snapshots(SECOND)
    assert bench.log.last_stable_offset == bench.log.log_end_offset
    bench.log.truncate_to(SECOND + 1)
    assert bench.log.last_stable_offset == 3
    bench.end(7, is_commit=False)
    bench.log.set_high_watermark(bench.log.log_end_offset)
    assert bench.log.last_stable_offset == bench.log.log_end_offset
    assert [each[:3] for each in bench.log.aborted_transactions(0, 99)] == [(7, 3, SECOND + 1)]


def test_a_transaction_that_is_open_yet_holds_readers_back() -> None:
    bench = held_open()
    bench.end(7)
    bench.reopen_with_snapshots(SECOND)
    assert bench.log.last_stable_offset == 2
    bench.end(8)
    bench.log.set_high_watermark(bench.log.log_end_offset)
    assert bench.log.last_stable_offset == bench.log.log_end_offset
