"""Which errors are tried again, and when."""

from ottla.broker.wire.schema import message
from ottla.pipeline.wire.codec import struct_classes
from ottla.pipeline.wire.retries import backoff_s, codes_in, is_retriable, moves_coordinator, moves_leader
from ottla.runtime.errors import ErrorCode


def test_the_wait_doubles_up_to_a_most() -> None:
    assert [backoff_s(attempt, 100, 1000) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff_s(10**9, 100, 1000) == 1.0


def test_a_moved_leader_is_looked_for_and_a_refusal_is_final() -> None:
    assert moves_leader(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert moves_coordinator(ErrorCode.NOT_COORDINATOR)
    assert is_retriable(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for code in (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NONE,
    ):
        assert not is_retriable(code)


def test_errors_are_found_at_any_depth_of_an_answer() -> None:
    classes = struct_classes(message("OffsetCommitResponse"))
    parts = [classes["OffsetCommitResponsePartition"](p, code) for p, code in enumerate((0, 16, 25))]
    answer = classes["OffsetCommitResponse"](0, [classes["OffsetCommitResponseTopic"]("t", bytes(16), parts)])

    assert {ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID} == codes_in(answer)


def test_errors_are_found_under_the_name_that_partitions_of_a_transaction_have_for_them() -> None:
    classes = struct_classes(message("AddPartitionsToTxnResponse"))
    part = classes["AddPartitionsToTxnPartitionResult"](0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    topic = classes["AddPartitionsToTxnTopicResult"]("t", [part])
    answer = classes["AddPartitionsToTxnResponse"](0, 0, [], [topic])

    assert codes_in(answer) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
