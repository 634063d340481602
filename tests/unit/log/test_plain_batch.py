"""Batches of keys and values are those that the reference encodes, and are read as it decodes them."""

from random import Random

import pytest

from ottla.log.batch import read_header
from ottla.log.plain_batch import COMPRESSED_BYTES_MAX, KeyValue, encode_pairs, read_pairs
from ottla.log.records import Record, RecordError, decode_records, encode_batch

TIME_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    "pairs",
    [
        [(b"k", b"v")],
        [(b"k", None), (None, b"v"), (None, None), (b"", b"")],
        [(bytes(63), bytes(64)), (bytes(2047), bytes(2048)), (bytes(70_000), b"")],
        [(b"k", b"%d" % number) for number in range(5_000)],
    ],
    ids=["one", "nothing", "lengths", "many"],
)
def test_a_plain_batch_has_the_bytes_of_the_reference(pairs: list[KeyValue]) -> None:
    records = [Record(offset, TIME_MS, pair[0], pair[1]) for offset, pair in enumerate(pairs)]
    assert encode_pairs(pairs, TIME_MS) == encode_batch(records)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_is_compressed_where_that_makes_it_smaller(codec: int) -> None:
    pairs: list[KeyValue] = [(b"key", bytes(500)), (b"k", None)]
    batch = encode_pairs(pairs, TIME_MS, codec)
    header = read_header(batch, 0)
    assert (header.compression, header.size_bytes) == (codec, len(batch))
    assert len(batch) < 300
    assert list(read_pairs(batch, header)) == [(offset, *pair) for offset, pair in enumerate(pairs)]
    assert [each.timestamp for each in decode_records(batch, header)] == [TIME_MS, TIME_MS]
    assert encode_pairs([(b"k", b"v")], TIME_MS, codec) == encode_pairs([(b"k", b"v")], TIME_MS)


def test_what_would_take_long_to_compress_is_not_compressed() -> None:
    pairs: list[KeyValue] = [(b"key", bytes(COMPRESSED_BYTES_MAX))]
    assert encode_pairs(pairs, TIME_MS, 1) == encode_pairs(pairs, TIME_MS)


def test_what_stands_behind_key_and_value_is_not_written() -> None:
    assert encode_pairs([(b"k", b"v", "meaning")], TIME_MS) == encode_pairs([(b"k", b"v")], TIME_MS)


def test_what_the_reference_encodes_is_read_without_times_and_headers() -> None:
    records = [
        Record(40, 1_000, b"k", b"v", (("h", b"x"),)),
        Record(43, 9_000_000_000, None, bytes(70_000)),
        Record(1_000_000, -5, bytes(200), None),
    ]
    batch = b"123" + encode_batch(records, base_offset=40, compression=3)
    expected = [(each.offset, each.key, each.value) for each in records]
    assert list(read_pairs(batch, read_header(batch, 3), 3)) == expected


def test_damaged_records_are_read_as_the_reference_reads_them_or_refused() -> None:
    rng = Random(1)
    sound = encode_pairs([(b"key", b"v" * 130), (b"k", None), (b"", b"value")], TIME_MS)
    for _ in range(3_000):
        batch = bytearray(sound)
        batch[rng.randrange(61, len(batch))] = rng.choice([0, 1, 3, 127, 128, 255, rng.randrange(256)])
        header = read_header(batch)
        try:
            expected = [(each.offset, each.key, each.value) for each in decode_records(batch, header)]
        except RecordError:
            continue  # it looks at headers too
        assert list(read_pairs(batch, header)) == expected


@pytest.mark.parametrize("at", range(61, 76))
def test_records_that_are_cut_off_are_refused(at: int) -> None:
    batch = encode_pairs([(b"key", b"value")], TIME_MS)
    header = read_header(batch)
    with pytest.raises(RecordError):
        list(read_pairs(batch[:at], header))


def test_bytes_behind_the_last_record_are_refused() -> None:
    batch = encode_pairs([(b"key", b"value"), (b"k", b"v")], TIME_MS)
    with pytest.raises(RecordError, match="after the last record"):
        list(read_pairs(batch, read_header(batch)._replace(records_count=1)))
