"""Records looked at one by one, in pieces of any size, come out as a decoder of the whole sees them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.batch import read_header
from ottla.log.record_check import RecordWalk
from ottla.log.record_times import first_at_or_after
from ottla.log.records import Record, RecordError, append_varint, decode_records, encode_batch, encode_records

NOW = 1_700_000_000_000

some_bytes = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([bytes(63), bytes(64), bytes(9_000)]))
some_records = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=200,
).map(lambda rows: [Record(offset, NOW + row[0], *row[1:]) for offset, row in enumerate(rows)])


def pieces_of(block: bytes, size: int) -> list[bytes]:
    return [block[at : at + size] for at in range(0, len(block), size)]


def walked(block: bytes, count: int, size: int = 1 << 20, *, keys_required: bool = False) -> RecordWalk:
    walk = RecordWalk(count, keys_required=keys_required)
    for piece in pieces_of(block, size):
        walk.feed(piece)
    walk.finish()
    return walk


@given(some_records, st.integers(1, 5_000))
def test_sound_records_pass_in_pieces_of_any_size(records: list[Record], size: int) -> None:
    walk = walked(bytes(encode_records(records, 0, NOW)), len(records), size)
    times = [record.timestamp - NOW for record in records]
    assert (walk.index, walk.least, walk.largest) == (len(records), min(times), max(times))


@given(some_records, st.integers(1, 5_000), st.randoms(use_true_random=False))
def test_whatever_a_decoder_refuses_is_refused(records: list[Record], size: int, rng: Random) -> None:
    batch = encode_batch(records)
    header = read_header(batch)
    block = bytearray(batch[61:])
    for _ in range(rng.randrange(1, 3)):
        block[rng.randrange(min(len(block), 300))] ^= 1 << rng.randrange(8)
    if rng.randrange(2):
        del block[rng.randrange(len(block)) :]
    try:
        found = decode_records(batch[:61] + block, header._replace(batch_length=49 + len(block)))
    except RecordError as error:
        if "UTF-8" not in error.message and "varint" not in error.message:
            with pytest.raises(RecordError):
                walked(bytes(block), len(records), size)
        return
    if [record.offset for record in found] == list(range(len(records))):
        walked(bytes(block), len(records), size)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("block", "index"),
    [
        (b"\x0c\x00\x00\x00\x01\x01\x00\x0d", 1),  # a negative length
        (b"\x0c\x00\x00\x00\x01\x01\x00\x80\x80\x80\x80\x80", 1),  # a length of more than 32 bits
        (b"\x0c\x00\x00\x00\x01\x01\x00\x0c\x00\x00\x02\x03\x01\x00", 1),  # a key of length -2
        (b"\x0c\x00\x00\x00\x01\x01\x00\x0c\x00\x00\x02\x01\x03\x00", 1),  # a value of length -2
        (b"\x0c\x00\x00\x00\x01\x01\x00\x0c\x00\x00\x02\x01\x01\x01", 1),  # -1 headers
        (b"\x0c\x00\x00\x00\x01\x01\x00\x0c\x00\x00\x02\x01\x7e\x00", 1),  # a value beyond the end
        (b"\x0e\x00\x00\x00\x01\x01\x02\x01", 0),  # a header without a key
        (b"\x0c\x00\x00\x00\x01\x01\x00\x0e\x00\x00\x02\x01\x01\x00\x00", 1),  # more bytes than fields
        (b"\x0c\x00\x00\x00\x01\x01\x00\x0c\x00\x00\x00\x01\x01\x00", 1),  # offset delta 0 twice
        (b"\x0c\x00\x00\x00\x01\x01\x00", 1),  # one of two
    ],
)
def test_the_record_that_is_wrong_is_named(block: bytes, index: int, size: int) -> None:
    with pytest.raises(RecordError) as caught:
        walked(block, 2, size)
    assert caught.value.batch_index == index


def test_bytes_behind_the_last_record_are_refused() -> None:
    for size in (1, 7, 8):
        with pytest.raises(RecordError):
            walked(b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1, size)


def test_a_large_record_is_not_looked_at_again_with_every_piece() -> None:
    block = bytes(encode_records([Record(0, NOW, None, bytes(4_000_000)), Record(1, NOW, None, b"")], 0, NOW))
    assert walked(block, 2, 1_000).index == 2  # would take minutes


@given(some_records, st.integers(1, 5_000), st.integers(-(2**40), 2**40), st.integers(0, 250))
def test_the_first_record_at_a_time_is_found_in_pieces_of_any_size(
    records: list[Record], size: int, delta: int, lowest: int
) -> None:
    header = read_header(encode_batch(records, base_offset=0))
    block = bytes(encode_records(records, 0, header.base_timestamp))
    expected = [(r.offset, r.timestamp) for r in records if r.timestamp >= NOW + delta and r.offset >= lowest]
    found = first_at_or_after(pieces_of(block, size), header, NOW + delta, lowest)
    assert found == (expected[0] if expected else None)


def test_nothing_is_read_behind_the_record_that_was_looked_for() -> None:
    records = [Record(number, NOW + number, None, bytes(100)) for number in range(100)]
    header = read_header(encode_batch(records))
    pieces = iter(pieces_of(bytes(encode_records(records, 0, NOW)), 1_000))
    assert first_at_or_after(pieces, header, NOW + 15, 0) == (15, NOW + 15)
    assert len(list(pieces)) == 9


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_records_without_an_end_are_no_answer(size: int) -> None:
    header = read_header(encode_batch([Record(0, NOW, None, b"x"), Record(1, NOW, None, b"y")]))
    sound = bytes(encode_records([Record(0, NOW, None, b"x")], 0, NOW))
    long = bytearray()
    append_varint(long, 2**40)
    for block in (b"", b"\xff" * 100, sound, sound + b"\x0c", sound + bytes(long), sound + b"\x7e\x00\x00\x02"):
        with pytest.raises(RecordError):
            first_at_or_after(pieces_of(block, size), header, NOW + 1, 0)
