"""Compaction: which records survive, and how their batches look afterwards."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ottla.log.batch import DELETE_HORIZON
from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.walk import map_key
from ottla.log.config import FOREVER
from ottla.log.records import Record, decode_records, encode_batch
from ottla.log.tools.verify import verify
from ottla.testing.log.compacted import DISK, NOW, RETENTION, CompactedLog, compacted_log


@pytest.fixture
def log() -> Iterator[CompactedLog]:
    with compacted_log() as log:
        yield log


@pytest.mark.parametrize("codec", range(5))
def test_the_last_value_of_each_key_stays_at_its_offset(log: CompactedLog, codec: int) -> None:
    log.append(("a", "1"), ("b", "1"), ("c", "1"), codec=codec)
    log.append(("b", "2"), ("a", "2"), ("b", "3"), codec=codec)
    before = {record.offset: record for record in log.records()}
    log.clean()
    assert log.pairs() == [(2, "c", "1"), (4, "a", "2"), (5, "b", "3")]
    assert all(record == before[record.offset] for record in log.records())
    assert [finding for finding in verify(DISK, log.directory) if finding.fault] == []


def test_batches_keep_their_bounds_and_lose_only_records(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("c", "2"))
    log.append(("x", "1"))
    log.clean()
    header, _ = next(log.batches())
    assert (header.base_offset, header.last_offset_delta, header.records_count, header.leader_epoch) == (0, 4, 3, 1)
    assert header.max_timestamp == 1004


def test_the_largest_time_of_a_batch_is_that_of_the_records_left(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"))
    log.append(("b", "2"))
    log.clean()
    assert next(log.batches())[0].max_timestamp == 1000


def test_a_batch_that_survives_whole_is_copied_byte_for_byte(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), codec=4)
    before = Path(log.path(0)).read_bytes()
    log.clean()
    assert Path(log.path(0)).read_bytes() == before


def test_the_active_segment_is_never_touched(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.roll()
    log.append(("a", "2"), ("a", "3"))
    result = clean(DISK, log.job())
    log.install(result)
    assert log.pairs() == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_a_later_cleaning_removes_from_the_clean_part_what_came_again(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"))
    log.clean()
    log.append(("a", "2"), ("c", "1"))
    log.clean()
    assert log.pairs() == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1")]


def test_a_log_cleaned_twice_is_as_after_once(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), ("a", "2"))
    log.clean()
    before = Path(log.path(0)).read_bytes()
    log.first_dirty = 0
    log.clean()
    assert Path(log.path(0)).read_bytes() == before


def test_records_without_a_key_go(log: CompactedLog) -> None:
    log.append((None, "1"), ("a", "1"), (None, "2"))
    log.clean()
    assert log.pairs() == [(1, "a", "1")]


def test_an_empty_key_is_a_key(log: CompactedLog) -> None:
    log.append(("", "1"), ("", "2"))
    log.clean()
    assert log.pairs() == [(1, "", "2")]


@pytest.mark.parametrize("length", [32, 33, 40, 64, 200])
def test_keys_of_any_length_are_told_apart(log: CompactedLog, length: int) -> None:
    keys = ["k" * length, "k" * (length - 1) + "l", "k" * (length - 1)]
    log.append(*((key, "1") for key in keys), (keys[0], "2"))
    log.clean()
    assert log.pairs() == [(1, keys[1], "1"), (2, keys[2], "1"), (3, keys[0], "2")]


def test_digests_cannot_meet_keys_that_are_kept_whole() -> None:
    assert map_key(b"k" * 32) == b"k" * 32
    assert len(map_key(b"k" * 33)) == 40


def test_a_tombstone_stays_until_its_horizon_and_then_goes(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), ("a", None))
    log.append(("z", "1"))
    log.clean()
    assert log.pairs() == [(1, "b", "1"), (2, "a", None), (3, "z", "1")]
    header, batch = next(log.batches())
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + RETENTION
    assert [record.timestamp for record in decode_records(batch, header)] == [1001, 1002]
    assert header.max_timestamp == 1002
    log.append(("y", "1"))
    log.clean(now_ms=NOW + RETENTION - 1)
    assert (2, "a", None) in log.pairs()
    assert next(log.batches())[0].base_timestamp == NOW + RETENTION
    log.append(("x", "1"))
    log.clean(now_ms=NOW + RETENTION)
    assert log.pairs() == [(1, "b", "1"), (3, "z", "1"), (4, "y", "1"), (5, "x", "1")]


def test_a_value_after_a_tombstone_removes_the_tombstone_at_once(log: CompactedLog) -> None:
    log.append(("a", None))
    log.append(("a", "1"))
    log.clean()
    assert log.pairs() == [(1, "a", "1")]


def test_times_survive_in_compressed_batches_with_a_horizon(log: CompactedLog) -> None:
    log.append(("a", None), ("b", "1"), codec=3)
    before = log.records()
    log.clean()
    assert log.records() == before
    log.append(("b", "2"))
    log.clean()
    assert log.pairs() == [(0, "a", None), (2, "b", "2")]
    assert [record.timestamp for record in log.records()] == [1000, 1002]


def test_tombstones_that_are_to_stay_for_ever_do(log: CompactedLog) -> None:
    log.append(("a", "1"), ("a", None), ("b", "1"))
    log.roll()
    for now_ms in (NOW, 10 * NOW):
        log.first_dirty = 0
        log.install(clean(DISK, msgspec.structs.replace(log.job(now_ms=now_ms), delete_retention_ms=FOREVER)))
    assert log.pairs() == [(1, "a", None), (2, "b", "1")]
    assert [record.timestamp for record in log.records()] == [1001, 1002]


@pytest.mark.parametrize("time", [-(2**63), -(2**62), 2**63 - 1])
def test_a_horizon_moves_no_time_of_a_record(log: CompactedLog, time: int) -> None:
    log.write(encode_batch([Record(0, time, b"a", None), Record(1, time, b"b", b"1")]))
    log.clean()
    assert [record.timestamp for record in log.records()] == [time, time]
