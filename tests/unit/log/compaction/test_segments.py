"""Compaction: which segments become one, where a cleaning ends, and the files it leaves."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ottla.log.batch import CorruptBatchError, read_header
from ottla.log.compaction.cleaner import CleaningJob, CleaningResult, clean
from ottla.log.compaction.mapping import KeyMap
from ottla.log.compaction.pieces import PIECE_BYTES
from ottla.log.records import Record, assemble_batch, encode_batch
from ottla.log.tools.verify import verify
from ottla.testing.log.compacted import DISK, NOW, CompactedLog, compacted_log


@pytest.fixture
def log() -> Iterator[CompactedLog]:
    with compacted_log() as log:
        yield log


def test_neighbouring_segments_become_one_and_the_last_batch_tells_its_end(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.roll()
    log.append(("a", "2"))
    log.roll()
    log.append(("a", "3"))
    log.roll()
    log.append(("a", "4"))
    log.roll()
    log.append(("b", "1"))
    result = clean(DISK, log.job())
    assert [part.replaced for part in result.cleaned] == [(0, 1, 2, 3)]
    log.install(result)
    assert log.pairs() == [(3, "a", "4"), (4, "b", "1")]
    log.append(("a", "5"))
    log.clean()
    assert log.pairs() == [(4, "b", "1"), (5, "a", "5")]


def bounds(log: CompactedLog) -> list[tuple[int, int, int]]:
    return [(header.base_offset, header.next_offset, header.records_count) for header, _ in log.batches()]


def test_a_segment_whose_records_all_went_is_empty(log: CompactedLog) -> None:
    log.append(("a", "1"), ("a", "2"))
    log.roll()
    log.append(("a", "3"), ("a", "4"))
    result = log.clean(segment_bytes=1)
    assert [(part.replaced, part.size_bytes > 0) for part in result.cleaned] == [((0,), False), ((2,), True)]
    assert bounds(log) == [(2, 4, 1)]


def test_only_the_last_batch_of_all_stays_without_records(log: CompactedLog) -> None:
    for pair in (("a", "1"), (None, "without a key"), (None, "as before")):
        log.append(pair)
        log.roll()
    log.clean(segment_bytes=1)
    assert bounds(log) == [(0, 1, 1), (2, 3, 0)]
    log.append(("b", "1"))
    log.clean(segment_bytes=1)
    assert bounds(log) == [(0, 1, 1), (3, 4, 1)]


def test_a_map_that_is_full_cleans_up_to_where_it_ends(log: CompactedLog) -> None:
    for number in range(10):
        log.append((f"k{number}", "1"), ("a", str(number)))
    result = log.clean(buffer_bytes=160 * 5)
    assert result.end_offset == 6
    assert log.pairs()[:4] == [(0, "k0", "1"), (2, "k1", "1"), (4, "k2", "1"), (5, "a", "2")]
    assert log.pairs()[4:] == [
        (o, k, v) for n in range(3, 10) for o, k, v in [(2 * n, f"k{n}", "1"), (2 * n + 1, "a", str(n))]
    ]
    while log.first_dirty < log.end:
        log.clean(buffer_bytes=160 * 5)
    assert log.pairs() == [(2 * n, f"k{n}", "1") for n in range(10)] + [(19, "a", "9")]


def test_one_batch_always_fits_the_map(log: CompactedLog) -> None:
    log.append(*((f"k{n}", "1") for n in range(10)))
    assert log.clean(buffer_bytes=1).end_offset == 10
    assert KeyMap(0).capacity == 1


def test_the_last_batch_of_a_living_producer_stays_empty(log: CompactedLog) -> None:
    log.append(("a", "1"), pid=5, sequence=0)
    log.append(("a", "2"), pid=6, sequence=0)
    log.append(("a", "3"))
    log.append(("z", "1"))
    log.roll()
    log.install(clean(DISK, log.job(keep_producers=True)))
    found = [(h.base_offset, h.producer_id, h.base_sequence, h.records_count) for h, _ in log.batches()]
    assert found == [(0, 5, 0, 0), (1, 6, 0, 0), (2, -1, -1, 1), (3, -1, -1, 1)]
    for at_ms in (NOW, NOW * 2):
        log.producers.expire(at_ms, 1)
    log.append(("y", "1"))
    log.roll()
    log.install(clean(DISK, log.job(keep_producers=True)))
    assert [h.base_offset for h, _ in log.batches()] == [2, 3, 4]


def test_a_damaged_batch_stops_the_cleaning(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.append(("a", "2"))
    log.roll()
    with open(log.path(0), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xaa")
    with pytest.raises(CorruptBatchError):
        clean(DISK, log.job())


def test_a_batch_whose_records_are_none_is_kept_as_it_is(log: CompactedLog) -> None:
    log.append(("a", "1"))
    header = read_header(encode_batch([Record(1, 0, b"a", b"")], base_offset=1, leader_epoch=1))
    log.write(assemble_batch(header._replace(records_count=3, last_offset_delta=2), b"\x10\x00\x00\x00\x02anonsense"))
    log.append(("a", "2"))
    before = [bytes(batch) for _, batch in log.batches()]
    log.clean()
    assert [bytes(batch) for _, batch in log.batches()] == before[1:]
    log.append(("b", "2"))
    log.clean()
    assert [bytes(batch) for _, batch in log.batches()][:2] == before[1:]


def test_what_an_earlier_cleaning_left_is_removed(log: CompactedLog) -> None:
    Path(log.path(77, ".log.cleaned")).touch()
    log.append(("a", "1"))
    log.clean()
    assert not os.path.exists(log.path(77, ".log.cleaned"))


def test_nothing_new_is_nothing_replaced(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.clean()
    result = clean(DISK, log.job())
    assert (result.cleaned, result.end_offset) == ([], 1)


def test_the_pace_is_told_every_byte_and_can_stop_it(log: CompactedLog) -> None:
    log.append(("a", "x" * 5000))
    log.roll()
    told: list[int] = []
    clean(DISK, log.job(), told.append)
    assert sum(told) == 2 * os.path.getsize(log.path(0))

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean(DISK, log.job(), stop)


def test_a_job_and_its_result_travel_as_json(log: CompactedLog) -> None:
    log.append(("a", "1"), pid=5, sequence=0)
    log.roll()
    job = log.job(keep_producers=True)
    assert msgspec.json.decode(msgspec.json.encode(job), type=CleaningJob) == job
    result = clean(DISK, job)
    assert msgspec.json.decode(msgspec.json.encode(result), type=CleaningResult) == result


def test_indexes_of_a_cleaned_segment_point_at_its_batches(log: CompactedLog) -> None:
    for number in range(50):
        log.append((f"k{number % 20}", "v" * 30), (f"l{number}", "v"))
    log.clean()
    index = Path(log.path(0, ".index")).read_bytes()
    assert len(index) >= 8 * 10
    assert [finding for finding in verify(DISK, log.directory) if finding.fault] == []
    assert struct.unpack(">qi", Path(log.path(0, ".timeindex")).read_bytes()[-12:]) == (1099, 99)


def test_damage_in_the_clean_part_stops_the_cleaning_too(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.clean()
    log.append(("b", "1"))
    log.roll()
    with open(log.path(0), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xaa")
    with pytest.raises(CorruptBatchError):
        clean(DISK, log.job())


CLEAN, DIRTY = 0, 1  # segments: their base offsets
BASE_OFFSET_AT, LAST_OFFSET_DELTA_AT = 7, 26  # the lowest bytes


@pytest.mark.parametrize(
    ("segment", "position"), [(CLEAN, LAST_OFFSET_DELTA_AT), (CLEAN, BASE_OFFSET_AT), (DIRTY, BASE_OFFSET_AT)]
)
def test_a_batch_that_is_not_in_its_place_stops_the_cleaning_and_costs_no_other_record(
    log: CompactedLog, segment: int, position: int
) -> None:
    log.append(("a", "1"))
    log.clean()
    for pair in (("b", "1"), ("c", "1"), ("b", "2")):
        log.append(pair)
    log.roll()
    data = bytearray(Path(log.path(segment)).read_bytes())
    data[position] ^= 0x40
    Path(log.path(segment)).write_bytes(data)
    with pytest.raises(CorruptBatchError):
        clean(DISK, log.job())


def test_batches_that_overlap_stop_the_cleaning(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"))
    log.end -= 1
    log.append(("c", "1"))
    log.roll()
    with pytest.raises(CorruptBatchError, match=r"batch 1\.\.1 where 2\.\.1 remain"):
        clean(DISK, log.job())


@pytest.mark.parametrize("cut", [1, 60, 61, 1000])
def test_a_segment_that_is_cut_off_stops_the_cleaning(log: CompactedLog, cut: int) -> None:
    log.append(("a", "1"))
    log.append(("b", "x" * 2000))
    log.roll()
    os.truncate(log.path(0), os.path.getsize(log.path(0)) - cut)
    with pytest.raises(CorruptBatchError):
        clean(DISK, log.job())


def test_batches_larger_than_what_is_read_at_once_are_cleaned(log: CompactedLog) -> None:
    large = "x" * (3 * PIECE_BYTES)
    for key, value in (("a", "1"), ("b", large), ("a", large), ("c", "1"), ("b", "2"), ("d", large)):
        log.append((key, value))
    log.clean()
    assert log.pairs() == [(2, "a", large), (3, "c", "1"), (4, "b", "2"), (5, "d", large)]
