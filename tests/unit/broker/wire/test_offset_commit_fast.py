"""The packed records of committed offsets are those that the generated codec writes, and reads."""

from random import Random

import pytest

from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.broker.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.broker.wire.offset_commit_fast import NO_ID, offset_key, offset_value, read_offset_key, read_offset_value

TIME_MS = 1_800_000_000_000


@pytest.mark.parametrize(("group", "topic", "partition"), [("g", "t", 0), ("", "", -1), ("grüße" * 999, "t" * 249, 9)])
def test_a_key_has_the_bytes_of_the_generated_codec(group: str, topic: str, partition: int) -> None:
    expected = b"\0\1" + b"".join(encoder(OffsetCommitKey, 0)(OffsetCommitKey(group, topic, partition)))
    assert offset_key(group, topic, partition) == expected


@pytest.mark.parametrize("metadata", ["", "m", "m" * 126, "m" * 127, "ü" * 4_096])
@pytest.mark.parametrize("topic_id", [NO_ID, b"T" * 16])
def test_a_value_has_the_bytes_of_the_generated_codec(metadata: str, topic_id: bytes) -> None:
    value = OffsetCommitValue(2**60, 7, metadata, TIME_MS, topic_id=topic_id)
    expected = b"\0\4" + b"".join(encoder(OffsetCommitValue, 4)(value))
    assert offset_value(2**60, 7, metadata, TIME_MS, topic_id) == expected


def test_what_no_record_holds_is_refused() -> None:
    with pytest.raises(WireError):
        offset_key("g" * 40_000, "t", 0)
    with pytest.raises(WireError):
        offset_value(2**63, 0, "", TIME_MS, NO_ID)


def test_a_key_is_read_as_the_generated_codec_reads_it_or_refused() -> None:
    rng = Random(1)
    sound = offset_key("grüße", "topic", 7)
    for _ in range(3_000):
        key = bytearray(sound)[: rng.randrange(2, len(sound) + 3)]
        if len(key) > 2:
            key[rng.randrange(2, len(key))] = rng.choice([0, 1, 5, 127, 128, 255, rng.randrange(256)])
        try:
            found, _ = decoder(OffsetCommitKey, 0)(memoryview(bytes(key)), 2)
        except WireError:
            with pytest.raises(WireError):
                read_offset_key(bytes(key))
        else:
            assert read_offset_key(bytes(key)) == (found.group, found.topic, found.partition)


def test_a_value_is_read_as_the_generated_codec_reads_it_or_left_to_it() -> None:
    rng, read = Random(1), 0
    sound = [offset_value(2**40, 7, metadata, TIME_MS, each) for metadata in ("", "ü") for each in (NO_ID, b"T" * 16)]
    for _ in range(3_000):
        value = bytearray(rng.choice(sound))
        if rng.random() < 0.7:
            value[rng.randrange(len(value))] = rng.choice([0, 1, 2, 4, 16, 17, 127, 128, 255, rng.randrange(256)])
            value = value[: rng.choice([len(value), rng.randrange(len(value))])]
        fast = read_offset_value(bytes(value))
        if fast is not None:
            read += 1
            found, _ = decoder(OffsetCommitValue, 4)(memoryview(bytes(value)), 2)
            mine = (found.offset, found.leader_epoch, found.metadata, found.commit_timestamp, found.topic_id)
            assert fast == mine
    assert read > 500
    assert all(read_offset_value(each) is not None for each in sound)
    longer = OffsetCommitValue(1, 2, "m" * 200, TIME_MS)
    assert read_offset_value(b"\0\4" + b"".join(encoder(OffsetCommitValue, 4)(longer))) is None
