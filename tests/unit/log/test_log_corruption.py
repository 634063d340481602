"""Bits that flip, files that lose their end, pages that turn to zeros: never a wrong record, always an error that names it."""

from collections.abc import Iterator
from random import Random

import pytest

from ottla.log.batch import read_header
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import (
    CLEANER_OFFSETS,
    CLEANING_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MetaProperties,
)
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, decode_records, encode_batch
from ottla.runtime.errors import KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.testing.log.offset_checkpoint import OffsetCheckpoint

PARTITION = TopicPartition("flights", 0)
DIRECTORY = "/data/flights-0"
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=300)
END = 150
PAGE_BYTES = 512
TRIALS = 90


def record(offset: int) -> Record:
    return Record(offset, NOW_MS + offset, None, f"{offset}".encode() * 20)


def open_log(disk: SimulatedDisk, *, clean: bool, directory: str = DIRECTORY) -> Log:
    return Log.open(disk, directory, PARTITION, CONFIG, now_ms=NOW_MS, clean_shutdown=clean, high_watermark=END)


def written(disk: SimulatedDisk, directory: str = DIRECTORY) -> Log:
    disk.make_directories(directory)
    log = open_log(disk, clean=False, directory=directory)
    for offset in range(0, END, 3):
        batch = encode_batch([record(offset + i) for i in range(3)], base_offset=offset, leader_epoch=offset // 50)
        log.append_as_follower(batch)
    log.set_high_watermark(END)
    log.close()
    return log


def spoil(disk: SimulatedDisk, name: str, rng: Random) -> None:
    """One fault at a random place of one file."""
    file = disk.open(f"{DIRECTORY}/{name}")
    size = file.size()
    if not size:
        return
    position = rng.randrange(size)
    match rng.randrange(3):
        case 0:
            file.write_at([bytes([file.read_at(1, position)[0] ^ 1 << rng.randrange(8)])], position)
        case 1:
            file.truncate(position)
        case _:
            start = position // PAGE_BYTES * PAGE_BYTES
            file.write_at([bytes(min(PAGE_BYTES, size - start))], start)
    file.close()


def records_in(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        header = read_header(data, at)
        yield from decode_records(data, header, position=at)
        at += header.size_bytes


def read_everything(log: Log, rng: Random) -> list[DamagedLogError]:
    """Reads from many offsets; checks what comes; returns what was refused."""
    refused = []
    for offset in [*range(log.log_start_offset, log.log_end_offset), *rng.sample(range(END), 30)]:
        if not log.log_start_offset <= offset < log.log_end_offset:
            continue
        try:
            read = log.read(offset, rng.choice([1, 300, 2000]))
        except DamagedLogError as error:
            refused.append(error)
            continue
        found = list(records_in(read.data))
        assert found == [record(number) for number in range(found[0].offset, found[-1].offset + 1)]
        assert found[0].offset <= offset <= found[-1].offset
        assert read.next_offset == found[-1].offset + 1
    return refused


def files_of(disk: SimulatedDisk, suffix: str) -> list[str]:
    return [name for name in disk.list_directory(DIRECTORY) if name.endswith(suffix)]


@pytest.mark.parametrize("seed", range(TRIALS))
def test_damage_below_the_recovery_point_is_refused_and_can_be_healed(seed: int) -> None:
    rng = Random(seed)
    disk = SimulatedDisk(Platter.seeded(seed))
    leader = written(disk, "/other")
    written(disk)
    spoil(disk, rng.choice(files_of(disk, ".log")), rng)
    log = open_log(disk, clean=True)
    refused = read_everything(log, rng)
    for error in refused:
        assert error.path.startswith(DIRECTORY)
        assert 0 <= error.offset <= END
    if refused:
        log.truncate_to(min(error.offset for error in refused))
    while log.log_end_offset < END:
        log.append_as_follower(leader.read(log.log_end_offset, 1000).data)
    assert read_everything(log, rng) == []
    assert log.log_end_offset == END


@pytest.mark.parametrize("seed", range(TRIALS))
def test_damage_above_the_recovery_point_is_cut_off(seed: int) -> None:
    rng = Random(seed)
    disk = SimulatedDisk(Platter.seeded(seed))
    written(disk)
    spoil(disk, rng.choice(files_of(disk, ".log")), rng)
    log = open_log(disk, clean=False)
    assert read_everything(log, rng) == []
    log.close()
    again = open_log(disk, clean=True)
    assert again.log_end_offset == log.log_end_offset
    assert again.epochs.entries() == log.epochs.entries()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("seed", range(TRIALS // 2))
def test_damage_of_an_index_is_never_seen(seed: int, suffix: str) -> None:
    rng = Random(seed)
    disk = SimulatedDisk(Platter.seeded(seed))
    written(disk)
    for name in files_of(disk, suffix):
        spoil(disk, name, rng)
    log = open_log(disk, clean=bool(seed % 2))
    assert log.log_end_offset == END
    assert read_everything(log, rng) == []
    for offset in range(END):
        found = log.offset_for_timestamp(NOW_MS + offset)
        assert found is not None
        assert found.offset == offset


@pytest.mark.parametrize("seed", range(TRIALS // 3))
def test_damage_of_any_other_file_costs_no_record(seed: int) -> None:
    rng = Random(seed)
    disk = SimulatedDisk(Platter.seeded(seed))
    written(disk)
    for name in ["leader-epoch-checkpoint", *files_of(disk, ".snapshot")]:
        spoil(disk, name, rng)
    try:
        log = open_log(disk, clean=bool(seed % 2))
    except KafkaError as error:
        pytest.fail(f"did not open: {error}")
    assert log.log_end_offset == END
    assert read_everything(log, rng) == []


@pytest.mark.parametrize(
    "name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANER_OFFSETS, CLEANING_OFFSETS]
)
@pytest.mark.parametrize("seed", range(TRIALS // 3))
def test_damage_of_a_directorys_checkpoint_serves_no_wrong_record(seed: int, name: str) -> None:
    """A digit that flips cannot be told from another offset: it may hide records, and never shows one that is none."""
    rng, disk = Random(seed), SimulatedDisk(Platter.seeded(seed))
    written(disk)
    MetaProperties("c", 1, bytes(15) + b"\x09").write(disk, "/data")
    offset = 0 if name == LOG_START_OFFSETS else END
    OffsetCheckpoint(disk, f"/data/{name}").write({PARTITION: offset, TopicPartition("others", 3): 5})
    whole = disk.read_bytes(f"/data/{name}")
    spoil(disk, f"../{name}", rng)
    settings = ManagerSettings(cluster_id="c", node_id=1)
    manager = LogManager(disk, ["/data"], CONFIG, settings, rng)
    manager.open_all(NOW_MS)
    log = manager.logs[PARTITION]
    assert read_everything(log, rng) == []
    assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset <= max(END, log.log_start_offset)
    if len(disk.read_bytes(f"/data/{name}")) < len(whole) or bytes(1) in disk.read_bytes(f"/data/{name}"):
        assert (log.log_start_offset, log.log_end_offset) == (0, END)  # noticed, and gone on without
    LogCleaner(disk, CleanerSettings(), manager.checkpoints.cleaned).next_task([log], NOW_MS)
    manager.close()


@pytest.mark.parametrize("stable", [1, 76, END])
def test_below_what_was_stable_nothing_is_cut_but_the_damage_is_told(stable: int) -> None:
    """A start cannot tell rot from a torn end, unless it is told what cannot be torn."""
    disk = SimulatedDisk(platter := Platter.seeded(1))
    log = written(disk)
    paths = [segment.path for segment in log.segments]
    flip_at(platter, log, 0 if stable == 1 else 75)
    damaged = [disk.read_bytes(path) for path in paths]
    with pytest.raises(DamagedLogError, match=f"below offset {stable} was on stable storage"):
        open_stable(disk, stable)
    assert [disk.read_bytes(path) for path in paths] == damaged


def test_a_log_that_lost_files_below_what_was_stable_is_told_of() -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    log = written(disk)
    disk.unlink(log.active.path)
    with pytest.raises(DamagedLogError, match="stable"):
        open_stable(disk, END)
    for segment in log.segments[:-1]:
        disk.unlink(segment.path)
    with pytest.raises(DamagedLogError, match="stable"):
        open_stable(disk, END)


def test_above_what_was_stable_the_end_is_cut_as_ever() -> None:
    disk = SimulatedDisk(platter := Platter.seeded(1))
    flip_at(platter, written(disk), 75)
    assert open_stable(disk, 75).log_end_offset == 75


def flip_at(platter: Platter, log: Log, offset: int) -> None:
    segment = log.segment_of(offset)
    platter.flip(segment.path, segment.find(offset)[0] + 30)


def open_stable(disk: SimulatedDisk, stable_offset: int) -> Log:
    return Log.open(disk, DIRECTORY, PARTITION, CONFIG, now_ms=NOW_MS, stable_offset=stable_offset)
