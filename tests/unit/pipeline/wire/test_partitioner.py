"""Where a key goes is Kafka's choice, not ours: a table replayed lands where the producer of old had put it."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.wire.partitioner import Turns, murmur2, murmur2_partitions

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""What Kafka's own tests expect of its Java client."""


def one_by_one(key: bytes) -> int:
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    found = 0x9747B28C ^ len(key)
    for at in range(0, len(key) & ~3, 4):
        word = int.from_bytes(key[at : at + 4], "little") * m & mask
        word = (word ^ word >> 24) * m & mask
        found = (found * m & mask) ^ word
    if tail := key[len(key) & ~3 :]:
        found = (found ^ int.from_bytes(tail, "little")) * m & mask
    found = (found ^ found >> 13) * m & mask
    return found ^ found >> 15


def test_the_java_clients_hashes() -> None:
    assert murmur2(pa.array(list(KNOWN))).tolist() == [number & 0xFFFFFFFF for number in KNOWN.values()]


@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(0, 3))
def test_all_keys_at_once_as_one_by_one(keys: list[bytes | None], skipped: int) -> None:
    array = pa.array(keys, pa.binary()).slice(min(skipped, len(keys)))
    assert murmur2(array).tolist() == [one_by_one(key or b"") for key in array.to_pylist()]
    expected = [(one_by_one(key or b"") & 0x7FFFFFFF) % 7 for key in array.to_pylist()]
    assert murmur2_partitions(array, 7).tolist() == expected


def test_texts_are_their_bytes() -> None:
    assert murmur2(pa.chunked_array([["21"], ["foobar"]])).tolist() == murmur2(pa.array([b"21", b"foobar"])).tolist()


def test_rows_without_a_key_change_their_partition_about_once_a_batch() -> None:
    turns = Turns(1, piece_bytes=300)
    assert turns.choose(5, 100.0, [4, 5, 6]).tolist() == [5, 5, 5, 6, 6]
    assert turns.choose(3, 100.0, [4, 5, 6]).tolist() == [6, 4, 4]
