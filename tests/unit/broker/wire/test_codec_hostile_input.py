"""Bytes from anyone: refused with WireError and nothing else, and never worth more memory than they have bytes."""

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from ottla.broker.coordinator.decisions.groups.settings import MEMBERS_MAX
from ottla.broker.network.limits import SHARES
from ottla.broker.wire.apis import APIS
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.decode_source import LISTED_MAX
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.layout import minimum_size
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.broker.wire.primitives import TAGS_MAX, encode_varint, read_varint, skip_tags
from ottla.broker.wire.schema import message, message_names, parse_message
from ottla.runtime.errors import ErrorCode

HUGE = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07"]
"""What a length of two thousand millions looks like, old and compact, and a varint that does not end."""


def decode(name: str, version: int, data: bytes) -> tuple[Any, int]:
    return decoder(name, version)(memoryview(data), 0)


def mutations(data: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    """The message with a byte changed, or with a huge length somewhere."""
    for _ in range(count if data else 0):
        mutated = bytearray(data)
        at = rng.randrange(len(mutated))
        if rng.random() < 0.5:
            mutated[at] = rng.randrange(256)
        else:
            huge = rng.choice(HUGE)
            mutated[at : at + len(huge)] = huge
        yield bytes(mutated)


@pytest.mark.parametrize("name", message_names())
def test_a_message_cut_short_anywhere_is_refused(name: str, make_message: Any) -> None:
    for version in message(name).versions:
        rng = random.Random(f"cut {name} {version}")
        data = b"".join(encoder(name, version)(make_message(name, version, rng)))
        for length in {*range(min(len(data), 40)), *rng.sample(range(len(data)), min(len(data), 10))}:
            with pytest.raises(WireError):
                decode(name, version, data[:length])


def test_a_mutated_message_is_read_or_refused_at_no_great_cost(make_message: Any) -> None:
    frames = []
    for name in message_names():
        for version in message(name).versions:
            rng = random.Random(f"mutated {name} {version}")
            data = b"".join(encoder(name, version)(make_message(name, version, rng)))[:4000]
            decoder(name, version)  # compiled before memory is counted
            frames += [(name, version, mutated) for mutated in mutations(data, rng, 20)]
    refused = 0
    tracemalloc.start()
    try:
        for name, version, data in frames:
            try:
                decode(name, version, data)
            except WireError as error:
                refused += error.code == ErrorCode.INVALID_REQUEST
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(frames) / 4 < refused < len(frames)
    assert peak < 2_000_000


def test_an_array_that_cannot_fit_is_refused_before_it_is_built() -> None:
    # The frame that makes kio abort its process: no transactional id, acks, timeout, 2^32-1 topics.
    with pytest.raises(WireError, match="array of 4294967294 does not fit"):
        decode("ProduceRequest", 9, b"\x00" + b"\x00\x01" + b"\x00\x00\x00\x05" + b"\xff\xff\xff\xff\x0f")
    with pytest.raises(WireError, match="array of 2147483647 does not fit"):
        decode("MetadataRequest", 1, b"\x7f\xff\xff\xff")


@pytest.mark.parametrize(
    ("make", "version"),
    [
        (lambda count: JoinGroupRequest(protocols=[JoinGroupRequestProtocol("p")] * count), 9),
        (lambda count: JoinGroupRequest(protocols=[JoinGroupRequestProtocol("p")] * count), 5),
        (lambda count: SyncGroupRequest(assignments=[SyncGroupRequestAssignment("m")] * count), 5),
    ],
)
def test_requests_that_may_be_large_for_their_bytes_list_no_more_than_a_groups_members(
    make: Callable[[int], msgspec.Struct], version: int
) -> None:
    def read(count: int) -> Any:
        request = make(count)
        return decode(type(request).__name__, version, b"".join(encoder(type(request), version)(request)))[0]

    assert read(20_000) == make(20_000)
    with pytest.raises(WireError, match="a list of 20001, 20000 are the most"):
        read(20_001)


def test_each_api_that_may_send_more_than_plain_ones_bounds_its_lists() -> None:
    walked = {"Produce", "Fetch"}  # by hand: `produce_fast.ENTRIES_MAX`, and a leader's partitions

    assert {APIS[key].name for key in SHARES} - walked == {name.removesuffix("Request") for name in LISTED_MAX}
    assert all(listed >= MEMBERS_MAX for listed in LISTED_MAX.values()), "a leader assigns to all members of its group"


def test_an_array_is_measured_by_its_elements_least_size() -> None:
    partitions = b"\x00\x00\x00\x03" + bytes(11)  # three int32 need twelve
    topic = b"\x00\x00\x00\x01" + b"\x00\x01t" + partitions

    with pytest.raises(WireError, match="array of 3 does not fit in the 11 bytes"):
        decode("ConsumerProtocolAssignment", 0, topic)


def test_elements_without_fields_count_as_a_byte_each() -> None:
    schema = parse_message("message X type data versions 0-1", ["  items []Empty 0+", "    added int32 1+"])

    assert minimum_size(schema, 0, "Empty") == 1
    assert minimum_size(schema, 1, "Empty") == 4


def test_a_struct_that_may_be_null_takes_a_byte_at_least() -> None:
    lines = ["  items []Holder 0+", "    held Held 0+ nullable 1+", "      number int64 0+"]
    schema = parse_message("message X type data versions 0-1", lines)

    assert minimum_size(schema, 0, "Holder") == 8
    assert minimum_size(schema, 1, "Holder") == 1


def test_more_tagged_fields_than_bytes_are_refused() -> None:
    api = b"\x00\x00" + b"\x01" + bytes(4)

    with pytest.raises(WireError, match="array of 4294967295 does not fit"):
        decode("ApiVersionsResponse", 3, api + b"\xff\xff\xff\xff\x0f" + bytes(20))


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(WireError, match="not a HeartbeatRequest of version 0"):
        decode("HeartbeatRequest", 0, b"\x00\x01\xff" + bytes(6))


def test_null_where_there_is_none_is_refused() -> None:
    with pytest.raises(WireError, match="null"):
        decode("HeartbeatRequest", 0, b"\xff\xff" + bytes(6))
    with pytest.raises(WireError, match="null"):
        decode("HeartbeatRequest", 4, bytes(20))


def test_compact_strings_are_limited_like_the_old_ones() -> None:
    def request(length: int) -> bytes:
        return encode_varint(length + 1) + b"g" * length + bytes(4) + b"\x01" + b"\x00" + b"\x00"

    assert len(decode("HeartbeatRequest", 4, request(32767))[0].group_id) == 32767
    with pytest.raises(WireError, match="longer than 32767"):
        decode("HeartbeatRequest", 4, request(32768))


def test_a_known_tag_must_fill_the_size_it_claims() -> None:
    api = b"\x00\x00" + b"\x01" + bytes(4)  # no error, no keys, no throttle time
    finalized = bytes(7) + b"\x05"

    assert decode("ApiVersionsResponse", 3, api + b"\x01\x01\x08" + finalized)[0].finalized_features_epoch == 5
    with pytest.raises(WireError, match="tag 1 does not fill its 9 bytes"):
        decode("ApiVersionsResponse", 3, api + b"\x01\x01\x09" + finalized + b"\x00")


@pytest.mark.parametrize("name", [name for name in message_names() if message(name).flexible.first < 100])
def test_tags_that_we_do_not_know_are_stepped_over_at_any_depth(
    name: str, make_message: Any, encode_with_unknown_tags: Any
) -> None:
    for version in message(name).versions:
        value = make_message(name, version, random.Random(f"tags {name} {version}"))
        data = encode_with_unknown_tags(value, version)

        assert decode(name, version, data) == (value, len(data))


def test_a_varint_has_at_most_five_bytes_and_32_bits() -> None:
    assert read_varint(memoryview(b"\xff\xff\xff\xff\x0f"), 0) == (2**32 - 1, 5)
    for endless in (b"\xff\xff\xff\xff\x1f", b"\xff" * 10):
        with pytest.raises(WireError, match="32 bits"):
            read_varint(memoryview(endless), 0)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**21, 2**28, 2**32 - 1])
def test_a_varint_comes_back(value: int) -> None:
    data = encode_varint(value)

    assert read_varint(memoryview(data), 0) == (value, len(data))


def test_a_tagged_section_with_more_fields_than_bytes_is_refused() -> None:
    with pytest.raises(WireError, match="array of 100 does not fit"):
        skip_tags(memoryview(b"\x00" * 10), 0, 100)


def test_an_unknown_tag_may_not_reach_beyond_the_end() -> None:
    with pytest.raises(WireError, match="beyond"):
        skip_tags(memoryview(b"\x09\x05abcd"), 0, 1)


def test_a_tagged_section_of_very_many_fields_is_refused_before_they_are_read() -> None:
    empty = b"\x09\x00"

    assert skip_tags(memoryview(empty * TAGS_MAX), 0, TAGS_MAX) == 2 * TAGS_MAX
    with pytest.raises(WireError, match="tagged fields, 32 are the most"):
        skip_tags(memoryview(empty * (TAGS_MAX + 1)), 0, TAGS_MAX + 1)
