"""Reading segments from front to back for damage that nobody has met."""

from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.log.segments.scrub import NOTHING, SegmentScrub
from ottla.log.tools.verify import verify
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

DIRECTORY = "/data/flights-0"
CONFIG = LogConfig(segment_bytes=6_000, index_interval_bytes=300)
END = 120
PIECE_BYTES = 1_000


@pytest.fixture
def platter() -> Platter:
    return Platter.seeded(1)


def open_log(platter: Platter, config: LogConfig = CONFIG) -> Log:
    disk = SimulatedDisk(platter)
    disk.make_directories(DIRECTORY)
    return Log.open(disk, DIRECTORY, TopicPartition("flights", 0), config, now_ms=0, clean_shutdown=True)


def written(platter: Platter, config: LogConfig = CONFIG) -> Log:
    log = open_log(platter, config)
    for offset in range(0, END, 2):
        records = [Record(offset + at, 1_000 + offset, None, b"x" * 70) for at in range(2)]
        log.append_as_follower(encode_batch(records, base_offset=offset))
    log.close()
    return open_log(platter, config)


def scrub_all(log: Log, piece_bytes: int = PIECE_BYTES) -> list[SegmentScrub]:
    found: list[SegmentScrub] = []
    offset = 0
    while (scrub := log.scrub_from(offset)) is not None:
        while not scrub.step(piece_bytes):
            pass
        found.append(scrub)
        if scrub.suspect != NOTHING:
            break
        offset = scrub.following
    return found


def segments_of(log: Log) -> list[str]:
    return [segment.path for segment in log.segments]


@pytest.mark.parametrize("piece_bytes", [100, 1_000, 1 << 20])
def test_a_sound_log_has_nothing_to_tell(platter: Platter, piece_bytes: int) -> None:
    log = written(platter)
    scrubs = scrub_all(log, piece_bytes)
    assert [scrub.path for scrub in scrubs] == segments_of(log)
    assert {(scrub.suspect, scrub.index_is_wrong) for scrub in scrubs} == {(NOTHING, False)}


@pytest.mark.parametrize("seed", range(40))
def test_every_flipped_bit_of_a_batch_is_found_where_it_is(platter: Platter, seed: int) -> None:
    rng = Random(seed)
    log = written(platter)
    segment = rng.choice(log.segments)
    position = rng.randrange(segment.size)
    offset = next(header.base_offset for at, header in segment.walk_from(0) if at + header.size_bytes > position)
    epoch = 12 <= position - segment.find(offset)[0] < 16
    platter.flip(segment.path, position, rng.randrange(8))
    if epoch:
        return  # the leader epoch lies outside the CRC, and nothing else bears witness to it
    suspect = scrub_all(open_log(platter))[-1].suspect
    assert segment.base_offset <= suspect <= offset + 2
    with pytest.raises(DamagedLogError):
        log.recheck(suspect, 1 << 20)


def test_a_batch_that_reaches_into_the_next_segment_is_found_in_a_compacted_log_too(platter: Platter) -> None:
    config = LogConfig(segment_bytes=6_000, index_interval_bytes=6_000, cleanup_policy=("compact",))
    log = written(platter, config)
    first, second = log.segments[:2]
    platter.flip(first.path, first.find(second.base_offset - 2)[0] + 6, 0)  # the base offset, which no CRC covers
    log = open_log(platter, config)
    suspect = scrub_all(log)[-1].suspect
    assert suspect == second.base_offset - 2
    with pytest.raises(DamagedLogError):
        log.recheck(suspect, 1 << 20)


def test_a_closed_segment_that_lost_its_end_is_found(platter: Platter) -> None:
    log = written(platter)
    first, second = log.segments[:2]
    file = SimulatedDisk(platter).open(first.path)
    file.truncate(first.find(second.base_offset - 2)[0])
    file.close()
    log = open_log(platter)
    suspect = scrub_all(log)[-1].suspect
    assert suspect == second.base_offset - 2
    with pytest.raises(DamagedLogError):
        log.recheck(suspect, 1 << 20)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_index_is_found_and_made_anew(platter: Platter, seed: int, suffix: str) -> None:
    rng = Random(seed)
    log = written(platter)
    path = rng.choice(log.segments).path.replace(".log", suffix)
    log.abandon()
    platter.flip(path, rng.randrange(len(SimulatedDisk(platter).read_bytes(path))), rng.randrange(8))
    log = open_log(platter)
    for scrub in scrub_all(log):
        assert scrub.suspect == NOTHING
        if scrub.index_is_wrong:
            log.rebuild_indexes(scrub.base_offset)
    assert not any(scrub.index_is_wrong for scrub in scrub_all(log))
    assert [str(finding) for finding in verify(SimulatedDisk(platter), DIRECTORY) if finding.fault] == []


def test_a_scrub_of_a_segment_that_was_cut_meanwhile_accuses_nobody(platter: Platter) -> None:
    log = written(platter)
    scrub = log.scrub_from(0)
    assert scrub is not None
    scrub.step(PIECE_BYTES)
    log.truncate_to(20)
    while not scrub.step(PIECE_BYTES):
        pass
    assert scrub.suspect != NOTHING, "the file it reads is shorter than it was"
    log.recheck(min(scrub.suspect, log.log_end_offset), 1 << 20)


@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
def test_a_file_that_is_cut_within_a_batch_meanwhile_ends_the_scrub(platter: Platter, piece_bytes: int) -> None:
    """As a write that found no room leaves it, behind a cut."""
    log = written(platter)
    scrub = log.scrub_from(0)
    assert scrub is not None
    SimulatedDisk(platter).open(log.segments[0].path).truncate(log.segments[0].size - 30)
    assert any(scrub.step(piece_bytes) for _ in range(1000))
    assert scrub.suspect == log.segments[1].base_offset - 2
