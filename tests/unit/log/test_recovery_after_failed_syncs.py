"""A sync fails, and the process ends or loses the directory: the system takes what it wrote for clean, shows it to the next process, and no
sync brings it to the disk, unless it is written again."""

import errno
from collections.abc import Callable

import pytest

from ottla.log import recovery
from ottla.log.config import LogConfig
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.contents import values

MakeBatch = Callable[..., bytearray]
PARTITION = TopicPartition("flights", 0)
NOW_MS = 1_700_000_000_000
COUNT = 30


def opened(platter: Platter, recovery_point: int = 0) -> Log:
    disk, config = SimulatedDisk(platter), LogConfig(segment_bytes=400)
    return Log.open(disk, f"/data/{PARTITION}", PARTITION, config, now_ms=NOW_MS, recovery_point=recovery_point)


def with_a_failed_sync(seed: int, make_batch: MakeBatch, synced: int) -> Platter:
    """The first ``synced`` of the records were before that. The process is gone, and the disk works again."""
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    log = opened(platter)
    disk.sync_directory("/data")
    disk.sync_directory("/")
    for number in range(COUNT):
        if number == synced:
            log.flush()
        log.append_as_leader(make_batch(1, f"{number}-"), 0, NOW_MS)
    mend = platter.fail("/data", operations=("sync",))
    for segment in log.segments:
        with pytest.raises(OSError, match="Input/output error"):
            segment.sync()
    with pytest.raises(StorageError):
        log.flush()
    mend()
    platter.close_sessions()
    return platter


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("synced", [0, 7])
def test_what_a_sync_did_not_bring_to_the_disk_the_next_one_does(seed: int, synced: int, make_batch: MakeBatch) -> None:
    platter = with_a_failed_sync(seed, make_batch, synced)
    log = opened(platter, synced)
    assert len(values(log)) == COUNT
    log.flush()
    platter.power_loss()
    assert len(values(opened(platter, COUNT))) == COUNT


def test_a_large_log_that_lost_its_recovery_point_is_not_written_again(
    make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terabytes, which were synced long ago."""
    platter = with_a_failed_sync(1, make_batch, 0)
    monkeypatch.setattr(recovery, "_YOUNG_BYTES_MAX", 1_000)
    written: list[str] = []
    platter.on_attempt = lambda operation, path: written.append(path) if operation == "write" else None
    assert len(values(opened(platter))) == COUNT
    assert not [each for each in written if each.endswith(".log")]


def test_a_log_on_a_full_disk_is_opened_all_the_same(make_batch: MakeBatch) -> None:
    platter = with_a_failed_sync(1, make_batch, 0)
    platter.fail("/data", errno.ENOSPC, ("write",))
    assert len(values(opened(platter))) == COUNT


def test_a_disk_that_refuses_what_it_gave_costs_its_directory(make_batch: MakeBatch) -> None:
    platter = with_a_failed_sync(1, make_batch, 0)
    platter.fail("/data", errno.EIO, ("write",))
    with pytest.raises((OSError, StorageError)):
        opened(platter)
