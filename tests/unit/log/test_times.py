"""Searches by time: what is looked into on a thread, and what a client's own nonsense is taken for."""

from collections.abc import Callable

import pytest

from ottla.log.batch import HEADER_BYTES, read_header
from ottla.log.compression import compress
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.records import Record, assemble_batch, encode_batch, encode_records
from ottla.log.results import ColdReadError, TimestampAndOffset
from ottla.log.times import Look, Unclear
from ottla.runtime.simulation.platter import Platter

NOW_MS = 1_700_000_000_000
CODECS = [1, 2, 3, 4]

OpenLog = Callable[..., Log]


def put(log: Log, block: bytes, count: int, *, codec: int = 0, max_timestamp: int = NOW_MS) -> None:
    """A batch as an older version took it: sound by its CRC, with anything in it."""
    sound = encode_batch([Record(0, NOW_MS, None, b"x")], base_offset=log.log_end_offset, leader_epoch=0)
    header = read_header(sound)._replace(
        attributes=codec, records_count=count, last_offset_delta=count - 1, max_timestamp=max_timestamp
    )
    log.append_as_follower(assemble_batch(header, block))


def put_sound(log: Log, *times: int, codec: int = 0, size: int = 1) -> None:
    records = [Record(number, NOW_MS + time, None, bytes(size)) for number, time in enumerate(times)]
    log.append_as_leader(encode_batch(records, compression=codec), 0, NOW_MS + 10_000)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_with_a_sound_crc_is_its_producers_and_not_the_disks(open_log: OpenLog, codec: int) -> None:
    log = open_log()
    put_sound(log, 0)
    put(log, b"this cannot be decompressed", 3, codec=codec, max_timestamp=NOW_MS + 5)
    put_sound(log, 9)
    assert log.offset_for_timestamp(NOW_MS + 3) == TimestampAndOffset(1, NOW_MS + 5, 0)
    assert log.offset_for_timestamp(NOW_MS + 6) == TimestampAndOffset(4, NOW_MS + 9, 0)


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_records_that_are_fewer_than_their_header_says_are_no_damage(open_log: OpenLog, codec: int) -> None:
    log = open_log()
    block = compress(codec, encode_records([Record(0, NOW_MS, None, b"x")], 0, NOW_MS))
    put(log, block, 9, codec=codec, max_timestamp=NOW_MS + 5)
    assert log.offset_for_timestamp(NOW_MS) == TimestampAndOffset(0, NOW_MS, 0)
    assert log.offset_for_timestamp(NOW_MS + 1) == TimestampAndOffset(0, NOW_MS + 5, 0)


def test_what_the_disk_did_is_still_damage(open_log: OpenLog, platter: Platter) -> None:
    log = open_log()
    put_sound(log, 0, 1, 2, codec=1)
    platter.flip("/data/flights-0/00000000000000000000.log", HEADER_BYTES + 12)
    with pytest.raises(DamagedLogError):
        log.offset_for_timestamp(NOW_MS + 1)


@pytest.mark.parametrize(("codec", "size"), [(0, 40_000), *((codec, 200_000) for codec in CODECS)])
def test_what_may_take_long_is_given_out(open_log: OpenLog, codec: int, size: int) -> None:
    log = open_log()
    put_sound(log, 0, 5, codec=codec, size=size)
    search = log.search(NOW_MS + 3)
    look = next(search)
    assert isinstance(look, Look)
    assert look() == (1, NOW_MS + 5)
    with pytest.raises(StopIteration) as end:
        search.send(look())
    assert end.value.value == TimestampAndOffset(1, NOW_MS + 5, 0)


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_what_is_over_in_a_moment_is_done_at_once(open_log: OpenLog, codec: int) -> None:
    log = open_log()
    put_sound(log, 0, 5, codec=codec)
    with pytest.raises(StopIteration) as end:
        next(log.search(NOW_MS + 3))
    assert end.value.value == TimestampAndOffset(1, NOW_MS + 5, 0)


def test_a_batch_that_inflates_without_end_is_given_up(open_log: OpenLog) -> None:
    log = open_log()
    put(log, compress(4, bytes([12, 0, 0, 0, 1, 1, 0]) * 300_000), 300_000, codec=4, max_timestamp=NOW_MS + 5)
    look = next(log.search(NOW_MS + 3))
    assert isinstance(look, Look)
    assert look(1_000_000) == Unclear(is_size=True)
    put(log, b"", 2_000_000, codec=4, max_timestamp=NOW_MS + 5)
    assert log.offset_for_timestamp(NOW_MS + 5) == TimestampAndOffset(300_000, NOW_MS + 5, 0)


def test_headers_that_promise_what_no_record_holds_are_not_looked_at_for_ever(open_log: OpenLog) -> None:
    log = open_log()
    block = bytes(encode_records([Record(0, NOW_MS, None, b"x")], 0, NOW_MS))
    for _ in range(150):
        put(log, block, 1, max_timestamp=NOW_MS + 5)
    search = log.search(NOW_MS + 5)
    step = next(search)  # the first was looked into at once
    for _ in range(98):
        assert isinstance(step, Look)
        step = search.send(step())
    with pytest.raises(StopIteration) as end:
        search.send(None)
    assert end.value.value == TimestampAndOffset(100, NOW_MS + 5, 0)


def test_batches_without_records_are_passed_over(open_log: OpenLog) -> None:
    log = open_log(cleanup_policy=("compact",))
    header = read_header(encode_batch([Record(0, NOW_MS, None, b"x")]))
    emptied = header._replace(records_count=0, last_offset_delta=3, max_timestamp=NOW_MS + 5, leader_epoch=0)
    log.append_as_follower(assemble_batch(emptied, b""))
    log.append_as_leader(encode_batch([Record(0, NOW_MS + 2, b"k", b"x")]), 0, NOW_MS)
    assert log.offset_for_timestamp(NOW_MS + 1) == TimestampAndOffset(4, NOW_MS + 2, 0)
    assert log.offset_for_timestamp(NOW_MS + 3) is None


def test_a_log_that_is_cut_while_it_is_searched_is_searched_as_it_is(open_log: OpenLog) -> None:
    log = open_log()
    put_sound(log, 0)
    put_sound(log, 5, size=40_000)
    put_sound(log, 9, size=40_000)
    search = log.search(NOW_MS + 7)
    look = next(search)
    assert isinstance(look, Look)
    log.truncate_to(1)
    put_sound(log, 3)
    with pytest.raises(StopIteration) as end:
        search.send(None)
    assert end.value.value is None


def test_a_read_that_would_wait_for_the_disk_is_given_out(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    put_sound(log, 0, 5)
    read, cold = log.read, [True]

    def reading(offset: int, max_bytes: int, *, wait: bool) -> object:
        if not wait and cold:
            raise ColdReadError(log.active.handle, 0, cold.pop())
        return read(offset, max_bytes, wait=wait)

    monkeypatch.setattr(Log, "read", lambda _, *arguments, **options: reading(*arguments, **options))
    search = log.search(NOW_MS + 3)
    assert isinstance(next(search), ColdReadError)
    with pytest.raises(StopIteration) as end:
        next(search)
    assert end.value.value == TimestampAndOffset(1, NOW_MS + 5, 0)
