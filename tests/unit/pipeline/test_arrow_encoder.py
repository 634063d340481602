"""What the vectorised encoder writes, `ottla.log.records` and the libraries of its codecs read as the rows that went in."""

from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.batch import check_crc, headers
from ottla.log.records import Record, decode_records, encode_batch
from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.arrow.encoder import encode
from ottla.pipeline.arrow.schema import COLUMNS, HEADERS_TYPE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

blobs = st.none() | st.binary(max_size=200)
pairs = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
records = st.lists(st.builds(Record, st.just(0), st.integers(-1, 2**42), blobs, blobs, pairs), min_size=1, max_size=30)


def read(data: bytes) -> list[Record]:
    found: list[Record] = []
    for at, header in headers(data):
        check_crc(data, header, at)
        found += decode_records(data, header, position=at)
    return found


def columns_of(rows: list[Record]) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    return (
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        pa.array([[{"key": k, "value": v} for k, v in row.headers] for row in rows], HEADERS_TYPE),
        pa.array([row.timestamp for row in rows], pa.int64()),
    )


@given(records, st.sampled_from(CODECS), st.integers(0, 2**40), st.integers(62, 3000), st.integers(1, 40))
def test_the_rows_come_back_as_records(
    rows: list[Record], codec: str, base: int, batch_bytes: int, records_max: int
) -> None:
    keys, values, given_headers, times = columns_of(rows)

    made = list(
        encode(
            keys,
            values,
            headers=given_headers,
            timestamps=times,
            compression=codec,
            base_offset=base,
            batch_bytes=batch_bytes,
            records_max=records_max,
        )
    )

    assert read(b"".join(batch.data for batch in made)) == [
        row._replace(offset=base + number) for number, row in enumerate(rows)
    ]
    assert all(batch.rows <= records_max for batch in made)
    if codec == "none":
        assert all(len(batch.data) <= batch_bytes or batch.rows == 1 for batch in made)


@given(records)
def test_one_batch_is_byte_for_byte_what_the_log_writes(rows: list[Record]) -> None:
    keys, values, given_headers, times = columns_of(rows)

    (made,) = encode(keys, values, headers=given_headers, timestamps=times, base_offset=7, leader_epoch=3)

    numbered = [row._replace(offset=7 + number) for number, row in enumerate(rows)]
    assert made.data == bytes(encode_batch(numbered, base_offset=7, leader_epoch=3))


@pytest.mark.parametrize("codec", CODECS)
def test_large_batches_come_back(codec: str) -> None:
    values = [bytes([number % 251]) * (number % 4001) for number in range(300)] + [b"x" * 3_000_000, None]

    made = list(encode(None, pa.array(values), timestamps=5, compression=codec, base_offset=0))

    assert [record.value for record in read(b"".join(batch.data for batch in made))] == values
    assert len(made) == 3
    found = pa.Table.from_batches(Decoder("t", 0, COLUMNS).feed(b"".join(batch.data for batch in made)))
    assert found["value"].to_pylist() == values


def test_a_producers_batches_begin_at_zero_and_its_sequences_go_on() -> None:
    values = pa.array([b"v" * 100] * 10)

    made = list(
        encode(
            None,
            values,
            timestamps=5,
            batch_bytes=500,
            producer_id=9,
            producer_epoch=2,
            base_sequence=2**31 - 5,
            transactional=True,
        )
    )

    found = [next(headers(batch.data))[1] for batch in made]
    assert {(header.base_offset, header.producer_id, header.producer_epoch) for header in found} == {(0, 9, 2)}
    assert all(header.is_transactional for header in found)
    starts = accumulate((batch.rows for batch in made), initial=2**31 - 5)
    expected = [start % 2**31 for start in starts]
    assert [header.base_sequence for header in found] == expected[:-1]
    assert [batch.next_sequence for batch in made] == expected[1:]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_bytes_and_text_of_each_kind_are_taken(kind: pa.DataType) -> None:
    given_values = pa.array(["a", None, "", "dd"]).cast(kind)

    for values in (given_values, pa.chunked_array([given_values.slice(0, 1), given_values.slice(1)])):
        (made,) = encode(values, values, timestamps=1)
        assert [(r.key, r.value) for r in read(made.data)] == [(b"a", b"a"), (None, None), (b"", b""), (b"dd", b"dd")]


def test_slices_are_taken() -> None:
    rows = [Record(n, n, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),) * (n % 3)) for n in range(9)]
    parts = [column.slice(2, 5) for column in columns_of(rows)]

    (made,) = encode(parts[0], parts[1], headers=parts[2], timestamps=parts[3])

    assert read(made.data) == [row._replace(offset=row.offset - 2) for row in rows[2:7]]


def test_null_headers_are_none() -> None:
    given_headers = pa.array([None, [], [{"key": "a", "value": None}]], HEADERS_TYPE)

    (made,) = encode(None, pa.array([b"1", b"2", b"3"]), headers=given_headers, timestamps=1)

    assert [record.headers for record in read(made.data)] == [(), (), (("a", None),)]


def test_headers_of_long_offsets_are_written() -> None:
    """As Spark sends them with spark.sql.execution.arrow.useLargeVarTypes."""
    long = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    given_headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None], long)

    (made,) = encode(None, pa.array([b"1", b"2"]), headers=given_headers, timestamps=1)

    assert [record.headers for record in read(made.data)] == [(("a", b"1"), ("b", None)), ()]


@pytest.mark.parametrize("names", [("value", "key"), ("name", "text")])
def test_headers_go_by_the_names_of_their_fields_or_else_by_their_order(names: tuple[str, str]) -> None:
    kind = pa.list_(pa.struct([(names[0], pa.string()), (names[1], pa.string())]))
    given_headers = pa.array([[{names[0]: "1", names[1]: "2"}]], kind)

    (made,) = encode(None, pa.array([b"1"]), headers=given_headers, timestamps=1)

    assert read(made.data)[0].headers == ((("2", b"1"),) if "key" in names else (("1", b"2"),))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_each_unit_are_milliseconds_in_the_log(unit: str) -> None:
    times = pa.array([1_700_000_000_000, 1_700_000_001_000]).cast(pa.timestamp("ms")).cast(pa.timestamp(unit, "UTC"))

    (made,) = encode(None, pa.array([b"1", b"2"]), timestamps=times)

    assert [record.timestamp for record in read(made.data)] == [1_700_000_000_000, 1_700_000_001_000]


def test_no_rows_are_no_batches() -> None:
    assert list(encode(pa.array([], pa.binary()), None, timestamps=1)) == []


@pytest.mark.parametrize(
    ("values", "others"),
    [
        (None, {}),
        (pa.array([1, 2]), {}),
        (pa.array([b"1"]), {"timestamps": pa.array([None], pa.int64())}),
        (pa.array([b"1"]), {"timestamps": pa.array([1, 2], pa.int64())}),
        (pa.array([b"1"]), {"headers": pa.array([["a"]])}),
        (pa.array([b"1"]), {"headers": pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE)}),
        (pa.array([b"1"]), {"compression": "lzma"}),
    ],
)
def test_columns_that_cannot_be_records_are_refused_at_once(values: pa.Array, others: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        encode(None, values, **({"timestamps": 1} | others))  # type: ignore[arg-type]


def test_lz4_frames_have_independent_blocks() -> None:
    """Kafka's Java client refuses others."""
    (made,) = encode(None, pa.array([b"a" * 200_000]), timestamps=1, compression="lz4")

    assert made.data[61:65] == bytes.fromhex("04224d18")
    assert made.data[65] & 0x20
