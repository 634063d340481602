"""What was aborted below the recovery point, of which no start reads the batches again: after a power cut."""

import errno

import pytest

from ottla.log.config import LogConfig
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

PARTITION = TopicPartition("flights", 0)
DIRECTORY = "/data/flights-0"
NOW_MS = 1_700_000_000_000


def open_log(platter: Platter, recovery_point: int = 0) -> Log:
    return Log.open(
        SimulatedDisk(platter), DIRECTORY, PARTITION, LogConfig(), now_ms=NOW_MS, recovery_point=recovery_point
    )


def begin(log: Log, offset: int) -> None:
    batch = encode_batch(
        [Record(offset, NOW_MS, b"k", b"v")], base_offset=offset, leader_epoch=0,
        producer_id=7, producer_epoch=0, base_sequence=offset, transactional=True,
    )  # fmt: skip
    log.append_as_follower(bytes(batch))


def end(log: Log, offset: int, *, is_commit: bool = False) -> None:
    marker = end_marker_batch(
        EndMarker(is_commit, 0), producer_id=7, producer_epoch=0, timestamp=NOW_MS, base_offset=offset, leader_epoch=0
    )
    log.append_as_follower(bytes(marker))


def prepared(seed: int) -> tuple[Platter, SimulatedDisk]:
    """A disk with a directory for logs that outlives a power cut."""
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    disk.sync_directory("/")
    return platter, disk


def is_lost(seed: int, *, fails: bool, cleans: bool = False) -> bool:
    platter, _ = prepared(seed)
    log = open_log(platter)
    begin(log, 0)
    log.flush()
    if fails:
        platter.fail_once(1, errno.ENOSPC, ("create",))
    end(log, 1)
    assert not platter.failure_is_due
    log.root.set_full(False)
    log.roll()
    if cleans:
        log.sync_names()
        log.ensure_aborted()
    log.flush()
    platter.power_loss()
    log = open_log(platter, recovery_point=2)
    assert log.log_end_offset == 2
    return log.aborted_transactions(0, 2) != [AbortedTransaction(7, 0, 1, 2)]


@pytest.mark.parametrize("cleans", [False, True], ids=["when it is settled", "before a cleaning"])
def test_the_name_of_an_index_that_is_written_late_is_stable_with_its_entries(cleans: bool) -> None:
    assert [seed for seed in range(40) if is_lost(seed, fails=True, cleans=cleans)] == []


def test_the_name_of_an_index_is_stable_with_its_entries() -> None:
    assert [seed for seed in range(40) if is_lost(seed, fails=False)] == []


def comes_back(seed: int, *, cut: bool, killed: bool) -> bool:
    """Whether a transaction that another past of the log aborted is taken for aborted, though its marker in this one says commit."""
    platter, disk = prepared(seed)
    log = open_log(platter)
    begin(log, 0)
    size = log.size_bytes
    end(log, 1)
    log.flush()
    if cut:
        log.truncate_to(1)
    if killed:
        log.abandon()
        disk.open(log.active.path).truncate(size)
        log = open_log(platter, recovery_point=1)
    end(log, 1, is_commit=True)
    log.flush()
    platter.power_loss()
    return open_log(platter, recovery_point=2).aborted_transactions(0, 2) != []


@pytest.mark.parametrize(
    ("cut", "killed"), [(True, False), (False, True), (True, True)], ids=["by a cut", "by a start", "before a start"]
)
def test_what_goes_from_an_index_goes_for_good(cut: bool, killed: bool) -> None:
    assert [seed for seed in range(40) if comes_back(seed, cut=cut, killed=killed)] == []


def is_held_back(seed: int) -> bool:
    """Whether a transaction that was ended is open again, as in a snapshot of another past that went before the cut."""
    platter, disk = prepared(seed)
    log = open_log(platter)
    begin(log, 0)
    begin(log, 1)
    log.flush()
    log.producers.take_snapshot(disk, DIRECTORY, 2)  # as a stop leaves it
    platter.fail_once(1, errno.ENOSPC, ("truncate",), f"{DIRECTORY}/00000000000000000002.snapshot")
    with pytest.raises(StorageError):
        log.roll()
    log.root.set_full(False)
    log.truncate_to(1)
    end(log, 1, is_commit=True)
    log.flush()
    platter.power_loss()
    log = open_log(platter, recovery_point=2)
    log.set_high_watermark(2)
    return log.last_stable_offset != 2


def test_a_snapshot_that_a_roll_without_room_removed_is_not_back_after_a_cut() -> None:
    assert [seed for seed in range(40) if is_held_back(seed)] == []
