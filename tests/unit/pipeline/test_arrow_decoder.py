"""The vectorised decoder gives what `ottla.log.records` gives, for whatever a log may hold."""

import pickle
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.batch import BatchHeader, read_header
from ottla.log.records import (
    ControlType,
    EndMarker,
    Record,
    RecordError,
    assemble_batch,
    control_key,
    decode_records,
    encode_batch,
    end_marker_batch,
)
from ottla.pipeline.arrow.aborted import AbortedTransactions
from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.arrow.errors import CorruptRecordsError
from ottla.pipeline.arrow.schema import COLUMNS, schema

CODECS = range(5)
NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS

Row = tuple[bytes | None, bytes | None, int, int, int, list[tuple[str, bytes | None]]]

blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, list[Row]]:
    """A piece of a log, with gaps, and what is in it."""
    data, rows, offset = bytearray(), [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 6))):
        records = []
        base = offset + draw(st.integers(0, 3))
        at = base
        for _ in range(draw(st.integers(1, 8))):
            at += draw(st.integers(0, 2))
            time = draw(st.integers(0, 2**42))
            records.append(Record(at, time, draw(blobs), draw(blobs), draw(headers)))
            at += 1
        append_time = draw(st.booleans())
        data += encode_batch(
            records, base_offset=base, compression=draw(st.sampled_from(CODECS)), log_append_time=append_time
        )
        latest = max(record.timestamp for record in records)
        rows += [
            (r.key, r.value, r.offset, latest if append_time else r.timestamp, int(append_time), list(r.headers))
            for r in records
        ]
        offset = at
    return bytes(data), rows


def rows_of(found: Sequence[pa.RecordBatch]) -> list[Row]:
    rows: list[Row] = []
    for batch in found:
        assert batch.schema == schema(COLUMNS)
        millis = batch["timestamp"].cast(pa.int64()).to_pylist()
        columns = (batch[name].to_pylist() for name in ("key", "value", "offset", "timestampType", "headers"))
        for key, value, offset, kind, pairs, micros in zip(*columns, millis, strict=True):
            rows.append((key, value, offset, micros // 1000, kind, [(p["key"], p["value"]) for p in pairs or ()]))
    return rows


def plain(offset: int, count: int, *, codec: int = NONE, size: int = 10, **stamp: Any) -> bytearray:
    records = [Record(offset + i, 1000 + i, b"k%d" % (offset + i), b"v" * size) for i in range(count)]
    return encode_batch(records, base_offset=offset, compression=codec, **stamp)


def offsets_of(decoder: Decoder, data: bytes | bytearray, aborted: AbortedTransactions | None = None) -> list[int]:
    return [offset for batch in decoder.feed(data, aborted) for offset in batch["offset"].to_pylist()]


def offsets_and_error(decoder: Decoder, data: bytes | bytearray) -> tuple[list[int], CorruptRecordsError]:
    found: list[int] = []
    try:
        for batch in decoder.feed(data):
            found += batch["offset"].to_pylist()
    except CorruptRecordsError as error:
        return found, error
    raise AssertionError(f"nothing was found to be corrupt, {found} came")


@given(batches())
def test_rows_are_the_records_of_the_log(case: tuple[bytes, list[Row]]) -> None:
    data, rows = case
    decoder = Decoder("topic", 3, COLUMNS)

    found = list(decoder.feed(data))

    assert rows_of(found) == rows
    assert decoder.next_offset == rows[-1][2] + 1
    assert decoder.consumed == len(data)


@given(batches(), st.data())
def test_bytes_may_come_cut_off_anywhere(case: tuple[bytes, list[Row]], data: st.DataObject) -> None:
    log, rows = case
    decoder = Decoder("topic", 3, COLUMNS, target_bytes=data.draw(st.integers(1, 2000)))
    at, found = 0, list[pa.RecordBatch]()
    size = data.draw(st.integers(1, len(log)))
    while at < len(log):
        found += decoder.feed(log[at : at + size])
        at += decoder.consumed
        if decoder.consumed == 0:
            size = max(decoder.needed_bytes, size + 61)

    assert rows_of(found) == rows


@given(batches(), st.data())
def test_only_rows_from_start_to_end_come(case: tuple[bytes, list[Row]], data: st.DataObject) -> None:
    log, rows = case
    start = data.draw(st.integers(rows[0][2], rows[-1][2] + 1))
    end = data.draw(st.integers(start, rows[-1][2] + 3))
    decoder = Decoder("topic", 3, COLUMNS, start=start, end=end, rows_max=data.draw(st.integers(1, 5)))

    found = list(decoder.feed(log))

    assert rows_of(found) == [row for row in rows if start <= row[2] < end]
    assert start <= decoder.next_offset <= end
    assert decoder.done or end > rows[-1][2]


@pytest.mark.parametrize("columns", [("offset",), ("value", "key"), ("timestamp", "partition"), ("topic",), COLUMNS])
def test_columns_come_as_they_were_asked_for(columns: tuple[str, ...]) -> None:
    (batch,) = Decoder("a", 7, columns).feed(plain(0, 3))

    assert batch.schema == schema(columns)
    assert batch.num_rows == 3


def test_a_name_that_is_no_column_is_refused() -> None:
    with pytest.raises(ValueError, match="keys"):
        Decoder("a", 7, ("keys",))


def test_topic_and_partition_are_on_every_row() -> None:
    decoder = Decoder("fleet", 7, ("topic", "partition"), rows_max=4)

    rows = pa.Table.from_batches(decoder.feed(plain(0, 6))).to_pylist()

    assert rows == [{"topic": "fleet", "partition": 7}] * 6


def test_many_batches_of_different_sizes_are_read_together() -> None:
    log, offset = bytearray(), 0
    for number in range(400):
        count = 1 + number % 7 + (300 if number % 150 == 0 else 0)
        log += plain(offset, count, size=number % 90)
        offset += count

    assert offsets_of(Decoder("t", 0), log) == list(range(offset))


def test_control_batches_move_the_offset_and_give_no_rows() -> None:
    log = plain(0, 2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log += end_marker_batch(EndMarker(True, 0), producer_id=5, producer_epoch=0, timestamp=1, base_offset=2)
    decoder = Decoder("t", 0)

    assert offsets_of(decoder, log) == [0, 1]
    assert decoder.next_offset == 3


def test_a_batch_that_compaction_emptied_moves_the_offset() -> None:
    header = read_header(plain(0, 4))._replace(records_count=0)
    decoder = Decoder("t", 0)

    assert offsets_of(decoder, assemble_batch(header, b"")) == []
    assert decoder.next_offset == 4


def transactions_log() -> bytearray:
    """5 aborts 0..1 and commits 5..6; 6 commits 2; 7 is open at 8; 3 is no transaction's."""

    def sent(offset: int, count: int, producer: int) -> bytearray:
        return plain(offset, count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    def ended(offset: int, producer: int, committed: bool) -> bytearray:
        marker = EndMarker(committed, 0)
        return end_marker_batch(marker, producer_id=producer, producer_epoch=0, timestamp=1, base_offset=offset)

    log = sent(0, 2, 5) + sent(2, 1, 6) + plain(3, 1) + ended(4, 5, False) + sent(5, 2, 5)
    return log + ended(7, 5, True) + sent(8, 1, 7) + ended(9, 6, True)


def test_aborted_records_are_left_out_until_their_marker() -> None:
    assert offsets_of(Decoder("t", 0), transactions_log(), AbortedTransactions([(5, 0)])) == [2, 3, 5, 6, 8]


def test_aborted_records_are_left_out_by_an_index_too() -> None:
    aborted = AbortedTransactions.of_index([(5, 0, 4), (9, 100, 200)])

    assert offsets_of(Decoder("t", 0), transactions_log(), aborted) == [2, 3, 5, 6, 8]


def test_an_aborted_transaction_whose_marker_is_gone_ends_where_the_index_says() -> None:
    log = transactions_log()
    decoder = Decoder("t", 0, start=5)
    behind = bytes(log)[log.index(plain(5, 2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)) :]

    assert offsets_of(decoder, behind, AbortedTransactions.of_index([(5, 0, 4)])) == [5, 6, 8]


def test_what_is_aborted_is_known_across_pieces() -> None:
    log, aborted, decoder = transactions_log(), AbortedTransactions([(5, 0)]), Decoder("t", 0)
    found, at = list[int](), 0
    while at < len(log):
        found += offsets_of(decoder, log[at : at + 250], aborted)
        at += decoder.consumed

    assert found == [2, 3, 5, 6, 8]


def test_everything_is_read_without_isolation() -> None:
    assert offsets_of(Decoder("t", 0), transactions_log()) == [0, 1, 2, 3, 5, 6, 8]


def test_other_control_records_end_no_transaction() -> None:
    key = control_key(ControlType.LEADER_CHANGE)
    log = plain(0, 1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log += encode_batch([Record(1, 1, key, b"")], base_offset=1, control=True, transactional=True, producer_id=5)
    log += plain(2, 1, producer_id=5, producer_epoch=0, base_sequence=1, transactional=True)

    assert offsets_of(Decoder("t", 0), log, AbortedTransactions([(5, 0)])) == []


def test_times_that_microseconds_cannot_hold_are_clamped() -> None:
    log = encode_batch([Record(0, 2**62, None, None)], base_offset=0)

    (batch,) = Decoder("t", 0, ("timestamp",)).feed(log)

    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_before_a_corrupt_batch_come_and_then_an_error_names_it(codec: int) -> None:
    log = plain(0, 3, codec=codec) + plain(3, 3, codec=codec) + plain(6, 3, codec=codec)
    log[len(plain(0, 3, codec=codec)) + 80] ^= 1
    decoder = Decoder("orders", 4, target_bytes=50)

    found, error = offsets_and_error(decoder, log)
    assert re.search(r"orders-4: batch at offset 3 .*CRC", str(error))

    assert found == [0, 1, 2]
    assert decoder.next_offset == 3
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.topic, copy.partition, copy.offset, str(copy)) == ("orders", 4, 3, str(error))


def damaged(block: bytes, count: int = 1, **fields: int) -> bytearray:
    """A batch with a sound CRC of anything."""
    header = read_header(plain(0, 1))._replace(records_count=count, last_offset_delta=max(count - 1, 0), **fields)
    return assemble_batch(BatchHeader(*header), block)


RECORD = bytes(encode_batch([Record(0, 1000, b"k", b"v", (("h", b"x"),))], base_offset=0)[61:])


@pytest.mark.parametrize(
    "bad",
    [
        damaged(RECORD, count=2),
        damaged(RECORD, count=2**31 - 1),
        damaged(RECORD, count=-1),
        damaged(RECORD + b"\0"),
        damaged(b"\x01" + RECORD[1:]),
        damaged(b"\xff" * 12),
        damaged(RECORD[:3] + b"\x7f" + RECORD[4:]),
        damaged(RECORD[:4] + b"\x03" + RECORD[5:]),
        damaged(RECORD[:4] + b"\x7e" + RECORD[5:]),
        damaged(RECORD[:6] + b"\x7e" + RECORD[7:]),
        damaged(RECORD[:8] + b"\x7e" + RECORD[9:]),
        damaged(RECORD[:9] + b"\x01" + RECORD[10:]),
        damaged(RECORD[:11] + b"\x7e" + RECORD[12:]),
        damaged(RECORD, attributes=1),
        damaged(RECORD, attributes=2),
        damaged(RECORD, attributes=3),
        damaged(RECORD, attributes=4),
        damaged(RECORD, attributes=7),
        damaged(RECORD, base_offset=-5),
        damaged(RECORD, base_offset=2**63 - 1),
        damaged(RECORD, magic=1),
    ],
)
@pytest.mark.parametrize("many", [1, 300])
def test_a_batch_that_lies_about_itself_is_named(bad: bytearray, many: int) -> None:
    log = b"".join(plain(number, 1) for number in range(many)) + bad + plain(many + 1, 1)
    decoder = Decoder("t", 0, COLUMNS)

    found, error = offsets_and_error(decoder, log)

    assert found == list(range(many))
    assert error.position == len(b"".join(plain(number, 1) for number in range(many)))


def test_a_base_offset_beyond_the_end_that_the_next_batch_belies_is_damage() -> None:
    """It lies outside the CRC: read as the end of what was asked for, it would lose the rest in silence."""
    log = plain(0, 2) + plain(2, 2) + plain(4, 2)
    log[len(plain(0, 2)) + 2] ^= 1

    decoder = Decoder("t", 0, end=6)

    found, _ = offsets_and_error(decoder, log)

    assert found == [0, 1]
    assert not decoder.done


def test_offsets_that_go_back_are_damage() -> None:
    decoder = Decoder("t", 0)

    found, error = offsets_and_error(decoder, plain(0, 2) + plain(1, 2))
    assert re.search(r"offsets 1 to 2, behind 1", str(error))

    assert found == [0, 1]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_inflates_without_bounds_is_refused(codec: int) -> None:
    log = plain(0, 1) + encode_batch([Record(1, 1, None, bytes(5_000_000))], base_offset=1, compression=codec)
    decoder = Decoder("t", 0, batch_bytes_max=1_000_000)

    found, error = offsets_and_error(decoder, log)
    assert re.search(r"inflate", str(error))

    assert found == [0]


def test_a_batch_of_an_impossible_size_is_not_waited_for() -> None:
    log = plain(0, 1)
    log[8:12] = (2**31 - 1).to_bytes(4, "big")

    with pytest.raises(CorruptRecordsError, match="2147483659 bytes"):
        list(Decoder("t", 0).feed(log))


def test_headers_are_null_where_there_are_none() -> None:
    """As Spark's own connector gives them."""
    (batch,) = Decoder("t", 0, ("headers",)).feed(damaged(RECORD) + plain(1, 1))

    assert batch["headers"].to_pylist() == [[{"key": "h", "value": b"x"}], None]


def test_header_keys_that_are_no_text_are_replaced() -> None:
    block = bytearray(RECORD)
    block[block.index(b"h")] = 0xFF

    (batch,) = Decoder("t", 0, ("headers",)).feed(damaged(bytes(block)))

    assert batch["headers"].to_pylist() == [[{"key": "\ufffd", "value": b"x"}]]


@given(st.binary(min_size=62, max_size=300), st.integers(1, 4), st.integers(0, 4))
def test_whatever_the_bytes_are_rows_or_an_error_come(block: bytes, count: int, codec: int) -> None:
    try:
        for batch in Decoder("t", 0, COLUMNS).feed(damaged(block, count, attributes=codec)):
            batch.validate(full=True)
    except CorruptRecordsError:
        pass


@given(st.binary(max_size=300))
def test_whatever_comes_is_waited_for_or_refused(data: bytes) -> None:
    decoder = Decoder("t", 0, COLUMNS)
    try:
        assert list(decoder.feed(data)) == []
    except CorruptRecordsError:
        return
    assert decoder.consumed == 0


@given(
    st.lists(st.builds(Record, st.just(0), st.integers(0, 2**42), blobs, blobs, headers), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 2000), st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0xFF])), max_size=3),
)
def test_what_the_log_refuses_is_refused(records: list[Record], changes: list[tuple[int, int]]) -> None:
    records = [record._replace(offset=offset) for offset, record in enumerate(records)]
    sound = encode_batch(records, base_offset=0)
    block = bytearray(sound[61:])
    for place, octet in changes:
        block[place % len(block)] = octet
    log = assemble_batch(read_header(sound), block)
    try:
        expected = [(each.key, each.value, each.offset) for each in decode_records(log, read_header(log))]
        if any(not 0 <= offset < len(records) for _, _, offset in expected):
            expected = []  # it looks at no offsets
    except RecordError as error:
        if "UTF-8" in error.message:
            return  # those are replaced
        expected = []

    try:
        found = [row[:3] for row in rows_of(list(Decoder("t", 0, COLUMNS).feed(log)))]
    except CorruptRecordsError:
        found = []

    assert found == expected
