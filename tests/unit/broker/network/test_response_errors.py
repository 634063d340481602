"""Error codes of a response, wherever they stand in it."""

from ottla.broker.network.response_errors import errors_in
from ottla.broker.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.broker.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.broker.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.broker.wire.messages.sasl_handshake_response import SaslHandshakeResponse


def test_errors_are_found_at_every_depth() -> None:
    partitions = [
        ListOffsetsPartitionResponse(0, 6),
        ListOffsetsPartitionResponse(1, 0),
        ListOffsetsPartitionResponse(2, 3),
    ]
    message = ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", partitions), ListOffsetsTopicResponse("u", [])])
    assert list(errors_in(message)) == [6, 3]
    assert list(errors_in(CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=36)]))) == [36]


def test_an_error_of_the_whole_comes_with_those_of_its_parts() -> None:
    message = DescribeLogDirsResponse(error_code=31, results=[DescribeLogDirsResult(error_code=56)])
    assert list(errors_in(message)) == [31, 56]
    assert list(errors_in(SaslHandshakeResponse(error_code=33))) == [33]
