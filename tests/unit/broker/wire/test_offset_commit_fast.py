"""The packed records of committed offsets are those that the generated codec writes."""

import pytest

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.broker.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.broker.wire.offset_commit_fast import NO_ID, offset_key, offset_value

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
