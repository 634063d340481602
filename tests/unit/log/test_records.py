"""Records: encoding, decoding, hostile bytes, control records; kafka-python reads what we write."""

import contextlib
import warnings
from struct import error as StructError
from struct import pack, unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.batch import HEADER_BYTES, check_crc, read_header
from ottla.log.records import (
    ControlType,
    EndMarker,
    Headers,
    Record,
    RecordError,
    append_varint,
    assemble_batch,
    control_key,
    control_type_of,
    decode_records,
    encode_batch,
    end_marker_batch,
    read_end_marker,
    read_varint,
    value_batch,
)
from ottla.runtime.errors import KafkaError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by a deprecated function
    from kafka.record import MemoryRecords

Fields = tuple[int, bytes | None, bytes | None, Headers]
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
FIELDS = st.tuples(
    st.integers(0, 2**41), st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200), HEADERS
)


def records_of(fields: list[Fields], base_offset: int) -> list[Record]:
    return [Record(base_offset + index, *field) for index, field in enumerate(fields)]


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_survive_a_round_trip(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varint(out, 0) == (value, len(out))
    assert len(out) <= 10


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_a_varint_cut_off_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        read_varint(data, 0)


@given(st.lists(FIELDS, min_size=1, max_size=20), st.integers(0, 4), st.integers(0, 2**40))
def test_records_survive_a_round_trip(fields: list[Fields], compression: int, base_offset: int) -> None:
    records = records_of(fields, base_offset)
    batch = encode_batch(records, base_offset=base_offset, compression=compression)
    header = read_header(batch)
    check_crc(batch, header)
    assert decode_records(b"123" + batch, header, position=3) == records
    assert (header.records_count, header.last_offset) == (len(records), records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("compression", [0, 1, 3, 4])  # kafka-python's snappy needs a library that we have no use for
def test_another_implementation_reads_our_batches(compression: int) -> None:
    records = [Record(40 + i, 1000 + i, b"k%d" % i, b"v" * 50 * i, (("h", b"x"), ("n", None))) for i in range(20)]
    batch = encode_batch(records, base_offset=40, compression=compression)
    found = next(iter(MemoryRecords(bytes(batch))))
    assert found.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found] == records


def test_gaps_between_offsets_are_kept() -> None:
    records = [Record(10, 1, b"a", b"1"), Record(17, 2, b"b", None)]
    batch = encode_batch(records, base_offset=10)
    assert decode_records(batch, read_header(batch)) == records
    assert read_header(batch).last_offset_delta == 7


def test_log_append_time_overrides_the_records_own() -> None:
    batch = encode_batch([Record(0, 5, None, b"x"), Record(1, 9, None, b"y")], log_append_time=True)
    assert [record.timestamp for record in decode_records(batch, read_header(batch))] == [9, 9]


def test_a_value_batch_is_keyless_records_at_one_time() -> None:
    batch = value_batch([b"a", b"b"], base_offset=7, leader_epoch=3, timestamp=99)
    assert decode_records(batch, read_header(batch)) == [Record(7, 99, None, b"a"), Record(8, 99, None, b"b")]
    assert read_header(batch).leader_epoch == 3


def test_a_count_that_cannot_be_is_refused_before_anything_is_made() -> None:
    batch = encode_batch([Record(0, 0, None, b"")])
    header = read_header(batch)._replace(records_count=2**31 - 1)
    with pytest.raises(RecordError, match="cannot be in"):
        decode_records(batch, header)


def test_bytes_after_the_last_record_are_refused() -> None:
    header = read_header(encode_batch([Record(0, 0, None, b"abcdef")]))
    batch = encode_batch([Record(0, 0, None, b"abcdef"), Record(1, 0, None, b"")])
    with pytest.raises(RecordError, match="after the last record"):
        decode_records(batch, read_header(batch)._replace(records_count=header.records_count))


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "header without a key"),
        (b"\x0e\x00\x00\x00\x01\x01\x7e\x00", "headers cannot be in"),
        (b"\x0e\x00\x00\x00\x7e\x01\x00\x00", "field of 63 bytes"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "its length says"),
        (b"\x0a\x00\x00\x00\x01\x01\x00\x00", "record of 5 bytes"),
        (b"\x7e\x00\x00\x00\x01\x01\x00\x00", "record of 63 bytes"),
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x00", "not UTF-8"),
    ],
)
def test_fields_that_do_not_fit_are_refused(record: bytes, complaint: str) -> None:
    batch = assemble_batch(read_header(encode_batch([Record(0, 0, None, b"")])), record)
    with pytest.raises(RecordError, match=complaint) as caught:
        decode_records(batch, read_header(batch))
    assert caught.value.batch_index == 0


@given(st.binary(max_size=80), st.integers(0, 10))
def test_garbage_is_refused_and_never_crashes(block: bytes, count: int) -> None:
    batch = assemble_batch(read_header(encode_batch([Record(0, 0, None, b"")]))._replace(records_count=count), block)
    with contextlib.suppress(KafkaError):
        decode_records(batch, read_header(batch))


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_marker_is_read_back(committed: bool) -> None:
    marker = EndMarker(committed, coordinator_epoch=12)
    batch = end_marker_batch(marker, producer_id=9, producer_epoch=2, timestamp=77, base_offset=33)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert read_end_marker(batch, header) == marker


@given(
    st.booleans(), st.integers(-1, 2**31 - 1), st.integers(-1, 2**62), st.integers(-1, 32_767), st.integers(0, 2**62)
)
def test_an_end_marker_has_the_bytes_of_any_batch(
    committed: bool, coordinator_epoch: int, producer_id: int, producer_epoch: int, time: int
) -> None:
    made = end_marker_batch(
        EndMarker(committed, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=time,
        base_offset=time // 2,
        leader_epoch=3,
    )
    key, value = control_key(ControlType(committed)), pack(">hi", 0, coordinator_epoch)
    record = Record(time // 2, time, key, value)
    assert made == encode_batch(
        [record],
        base_offset=time // 2,
        leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        control=True,
        transactional=True,
    )


@given(st.integers(HEADER_BYTES, HEADER_BYTES + 16), st.integers(0, 255))
def test_a_marker_with_any_byte_wrong_is_read_as_its_record_is(place: int, byte: int) -> None:
    batch = end_marker_batch(EndMarker(True, 5), producer_id=9, producer_epoch=2, timestamp=77)
    batch[place] = byte
    header = read_header(batch)
    try:
        (record,) = decode_records(batch, header)
        control_type = control_type_of(record.key)
        if control_type > ControlType.COMMIT or control_type < 0:
            expected: EndMarker | None = None
        else:
            assert record.value is not None
            expected = EndMarker(control_type == ControlType.COMMIT, unpack_from(">hi", record.value)[1])
    except (KafkaError, StructError):
        with pytest.raises(RecordError):
            read_end_marker(batch, header)
    else:
        assert read_end_marker(batch, header) == expected


def test_other_control_records_are_no_end_marker() -> None:
    batch = encode_batch([Record(0, 0, control_key(ControlType.LEADER_CHANGE), b"")], control=True)
    assert read_end_marker(batch, read_header(batch)) is None
    empty = assemble_batch(read_header(batch)._replace(records_count=0), b"")
    assert read_end_marker(empty, read_header(empty)) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_control_key_must_be_whole(key: bytes | None) -> None:
    with pytest.raises(RecordError):
        control_type_of(key)


def test_an_end_marker_cut_off_is_refused() -> None:
    batch = encode_batch([Record(0, 0, control_key(ControlType.ABORT), b"\x00")], control=True)
    with pytest.raises(RecordError, match="cut off"):
        read_end_marker(batch, read_header(batch))
    assert len(batch) > HEADER_BYTES
