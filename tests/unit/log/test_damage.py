"""A log with damage in it: what is good is served up to the damage, what was believed in is looked at again."""

import pytest

from ottla.log.batch import read_header
from ottla.log.config import LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.log.tools.verify import verify
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

PARTITION = TopicPartition("flights", 0)
DIRECTORY = "/data/flights-0"
SEGMENT = f"{DIRECTORY}/{0:020d}.log"
CONFIG = LogConfig(index_interval_bytes=300)
END = 60


@pytest.fixture
def platter() -> Platter:
    return Platter.seeded(1)


def open_log(platter: Platter, *, clean: bool = True) -> Log:
    disk = SimulatedDisk(platter)
    disk.make_directories(DIRECTORY)
    return Log.open(disk, DIRECTORY, PARTITION, CONFIG, now_ms=0, clean_shutdown=clean, high_watermark=END)


def written(platter: Platter) -> Log:
    log = open_log(platter, clean=False)
    for offset in range(END):
        log.append_as_follower(encode_batch([Record(offset, 1_000, None, b"x" * 100)], base_offset=offset))
    log.set_high_watermark(END)
    return log


def offsets(data: bytes) -> list[int]:
    found, at = list[int](), 0
    while at < len(data):
        header = read_header(data, at)
        found.append(header.base_offset)
        at += header.size_bytes
    return found


def served(log: Log) -> tuple[list[int], int]:
    """What a reader gets from the front on, and the offset that it is refused at."""
    found: list[int] = []
    while True:
        try:
            read = log.read(len(found), 1 << 20)
        except DamagedLogError as error:
            return found, error.offset
        if not read.data:
            return found, -1
        found += offsets(read.data)


@pytest.mark.parametrize(
    ("byte", "size"),
    [(0, 1), (7, 1), (8, 4), (16, 1), (20, 1), (22, 1), (26, 1), (100, 1), (0, 61), (0, 500)],
    ids=["offset-high", "offset-low", "length", "magic", "crc", "attributes", "delta", "record", "header", "page"],
)
def test_what_lies_before_the_damage_is_served(platter: Platter, byte: int, size: int) -> None:
    written(platter).close()
    log = open_log(platter)
    position = log.active.find(30)[0]
    for at in range(position + byte, position + byte + size):
        platter.flip(SEGMENT, at, 3)
    found, refused_at = served(log)
    assert found == list(range(len(found)))
    assert len(found) == 30
    assert len(found) == refused_at


def test_what_this_process_wrote_is_believed_until_somebody_doubts_it(platter: Platter) -> None:
    log = written(platter)
    platter.flip(SEGMENT, log.active.find(30)[0] + 100)
    assert offsets(log.read(0, 1 << 20).data) == list(range(END))
    with pytest.raises(DamagedLogError) as found:
        log.recheck(20, 1 << 20)
    assert found.value.offset == 30
    assert served(log) == (list(range(30)), 30)


def test_a_doubt_without_reason_changes_nothing(platter: Platter) -> None:
    log = written(platter)
    log.recheck(20, 1 << 20)
    assert log.active.trusts(0, log.active.size)


def test_what_is_appended_after_the_damage_was_found_is_believed_in(platter: Platter) -> None:
    log = written(platter)
    platter.flip(SEGMENT, log.active.find(30)[0] + 100)
    with pytest.raises(DamagedLogError):
        log.recheck(0, 1 << 20)
    size = log.active.size
    log.append_as_follower(encode_batch([Record(END, 1_000, None, b"more")], base_offset=END))
    assert log.active.trusts(size, log.active.size)


def test_a_log_that_was_doubted_is_closed_like_any_other(platter: Platter) -> None:
    log = written(platter)
    platter.flip(SEGMENT, log.active.find(30)[0] + 100)
    with pytest.raises(DamagedLogError) as found:
        log.recheck(0, 1 << 20)
    log.truncate_to(found.value.offset)
    log.append_as_follower(encode_batch([Record(30, 9_000, None, b"more")], base_offset=30))
    log.recheck(0, 1 << 20)
    log.close()
    assert [str(finding) for finding in verify(SimulatedDisk(platter), DIRECTORY)] == []
    assert open_log(platter).largest_timestamp() >= 0
