"""Whatever a version can carry comes back from its bytes as it was."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.wire.codec import decoder, encoder, message_class
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.broker.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.broker.wire.messages.describe_topic_partitions_request import Cursor, DescribeTopicPartitionsRequest
from ottla.broker.wire.messages.fetch_request import FetchRequest
from ottla.broker.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.broker.wire.messages.join_group_response import JoinGroupResponse
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.broker.wire.messages.metadata_request import MetadataRequest
from ottla.broker.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.broker.wire.messages.transaction_log_value import TransactionLogValue
from ottla.broker.wire.primitives import ERROR_MESSAGE_MAX, UNCOPIED_MIN
from ottla.broker.wire.schema import message, message_names
from ottla.runtime.errors import ErrorCode

EVERY_VERSION = [(name, version) for name in message_names() for version in message(name).versions]


def encode(value: Any, version: int) -> bytes:
    return b"".join(encoder(type(value), version)(value))


def decode(name: str, version: int, data: bytes) -> tuple[Any, int]:
    return decoder(name, version)(memoryview(data), 0)


@pytest.mark.parametrize("name", message_names())
def test_random_messages_come_back_in_every_version(name: str, make_message: Any) -> None:
    for version in message(name).versions:
        rng = random.Random(f"{name} {version}")
        for _ in range(4):
            value = make_message(name, version, rng)
            data = encode(value, version)

            assert (value, len(data)) == decode(name, version, data)


@pytest.mark.parametrize("name", message_names())
def test_a_message_of_defaults_comes_back_in_every_version(name: str) -> None:
    value = message_class(name)()
    for version in message(name).versions:
        assert value == decode(name, version, encode(value, version))[0]


@settings(max_examples=150, deadline=None)  # compiling a codec for the first time takes longer than an example should
@given(st.sampled_from(EVERY_VERSION), st.randoms(use_true_random=False))
def test_any_message_comes_back(make_message: Any, which: tuple[str, int], rng: random.Random) -> None:
    name, version = which
    value = make_message(name, version, rng)
    data = encode(value, version)

    assert (value, len(data)) == decode(name, version, data)


def test_a_message_is_read_from_the_position_given() -> None:
    data = encode(ListGroupsRequest(states_filter=["Stable"]), 4)

    assert (ListGroupsRequest(states_filter=["Stable"]), 3 + len(data)) == decoder("ListGroupsRequest", 4)(
        memoryview(b"abc" + data), 3
    )


def test_large_records_are_neither_copied_into_nor_out_of_a_frame() -> None:
    records = bytes(UNCOPIED_MIN)
    partition = PartitionData(records=records)
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])

    buffers = encoder(FetchResponse, 11)(response)

    assert any(buffer is records for buffer in buffers)
    frame = memoryview(b"".join(buffers))
    found = decoder(FetchResponse, 11)(frame, 0)[0].responses[0].partitions[0].records
    assert isinstance(found, memoryview)
    assert found.obj is frame.obj


def test_bytes_are_copied_since_the_frame_does_not_last() -> None:
    request = JoinGroupRequest(protocols=[JoinGroupRequestProtocol("range", b"subscription")])
    frame = bytearray(encode(request, 5))

    found = decoder(JoinGroupRequest, 5)(memoryview(frame), 0)[0]
    frame[:] = bytes(len(frame))

    assert found.protocols[0].metadata == b"subscription"


@pytest.mark.parametrize("version", [2, 7])
def test_an_error_that_quotes_a_long_name_is_cut(version: int) -> None:
    """The name was as long as a string may be: with words around it the answer could not be written."""
    topic = CreatableTopicResult("t", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message="no: " + "é" * 16_383)
    told = decode("CreateTopicsResponse", version, encode(CreateTopicsResponse(0, [topic]), version))[0]

    message = told.topics[0].error_message
    assert (message[:6], message[-2:]) == ("no: éé", "é…")
    assert ERROR_MESSAGE_MAX - 3 < len(message.encode()) <= ERROR_MESSAGE_MAX


def test_a_null_array_differs_from_an_empty_one() -> None:
    assert decode("MetadataRequest", 9, encode(MetadataRequest(topics=None), 9))[0].topics is None
    assert decode("MetadataRequest", 9, encode(MetadataRequest(topics=[]), 9))[0].topics == []


def test_a_nullable_struct_may_be_there_or_not() -> None:
    there = DescribeTopicPartitionsRequest(cursor=Cursor("t", 3))

    assert there == decode("DescribeTopicPartitionsRequest", 0, encode(there, 0))[0]
    assert decode("DescribeTopicPartitionsRequest", 0, encode(DescribeTopicPartitionsRequest(), 0))[0].cursor is None


def test_a_version_refuses_a_field_that_it_lacks_and_may_not_drop() -> None:
    with pytest.raises(WireError, match="version 6 cannot carry group_instance_id") as caught:
        encoder(OffsetCommitRequest, 6)(OffsetCommitRequest(group_instance_id="static"))

    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_version_drops_an_ignorable_field_that_it_lacks() -> None:
    assert encode(FetchRequest(), 4) == encode(FetchRequest(rack_id="r", session_epoch=3), 4)


def test_a_version_refuses_null_where_it_has_none() -> None:
    with pytest.raises(WireError, match="cannot encode"):
        encoder(JoinGroupResponse, 6)(JoinGroupResponse(protocol_name=None))
    assert encode(JoinGroupResponse(protocol_name=None), 7)


def test_numbers_out_of_range_are_refused_on_encoding() -> None:
    with pytest.raises(WireError, match="cannot encode"):
        encoder(CreateTopicsRequest, 7)(CreateTopicsRequest(timeout_ms=2**31))


@pytest.mark.parametrize("version", [6, 9])
def test_strings_of_more_than_an_int16_are_refused_on_encoding(version: int) -> None:
    assert encode(CreateTopicsRequest(), 5)
    request = JoinGroupRequest(group_id="x" * 32768)
    with pytest.raises(WireError):
        encoder(JoinGroupRequest, version)(request)
    request.group_id = "x" * 32767
    assert request == decode("JoinGroupRequest", version, encode(request, version))[0]


def test_tagged_fields_go_out_in_the_order_of_their_tags() -> None:
    # In the schema the field of tag 3 stands before that of tag 2.
    value = TransactionLogValue(next_producer_epoch=5, client_transaction_version=2)

    assert encode(value, 1).endswith(b"\x02" + b"\x02\x02\x00\x02" + b"\x03\x02\x00\x05")


def test_a_version_that_does_not_exist_is_unsupported() -> None:
    with pytest.raises(WireError, match="no version 99") as caught:
        decoder("FetchRequest", 99)

    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_message_that_does_not_exist_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        encoder("LeaderAndIsrRequest", 0)
