"""Batches of keys and values are those that the reference encodes."""

import pytest

from ottla.log.plain_batch import KeyValue, encode_pairs
from ottla.log.records import Record, encode_batch

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


def test_what_stands_behind_key_and_value_is_not_written() -> None:
    assert encode_pairs([(b"k", b"v", "meaning")], TIME_MS) == encode_pairs([(b"k", b"v")], TIME_MS)
