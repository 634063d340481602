"""Errors are one line, and come back from another process as they were."""

import pickle

import pytest

from ottla.pipeline.wire.errors import (
    ClientError,
    ConnectionLostError,
    CoordinatorError,
    DeadlineError,
    PartitionError,
    SettingError,
    UnknownTopicError,
    UnsupportedApiError,
)
from ottla.runtime.errors import ErrorCode

EVERY = [
    ConnectionLostError("1 (a:9092)", "Fetch", "it closed the connection"),
    UnsupportedApiError("1 (a:9092)", "Fetch", "4-18", "0-3"),
    DeadlineError("Metadata", 60.0, "nobody answers"),
    UnknownTopicError("t"),
    PartitionError("t", 3, ErrorCode.OFFSET_OUT_OF_RANGE, 17, "1 (a:9092)", "the log begins at 20"),
    CoordinatorError("group", "g", ErrorCode.UNKNOWN_MEMBER_ID),
    SettingError("kafka.x=y must be a number"),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: ClientError) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert (type(error), str(error), vars(error)) == (type(again), str(again), vars(again))
    assert "\n" not in str(error)


def test_an_error_of_a_partition_names_broker_topic_partition_and_offset() -> None:
    error = PartitionError("t", 3, 1, 17, "1 (a:9092)", "the log begins at 20")

    assert str(error) == "broker 1 (a:9092): t-3 at offset 17: OFFSET_OUT_OF_RANGE (the log begins at 20)"
