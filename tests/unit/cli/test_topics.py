"""`ottla topics`: who may lead a partition that nobody is in sync of, and what was deleted."""

import json
from typing import Any, ClassVar

import msgspec
import pytest
from click.testing import CliRunner

from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.broker.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.broker.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from ottla.broker.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.broker.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.cli import topic_requests
from ottla.cli.failures import CommandError
from ottla.cli.topics import topics
from ottla.runtime.errors import ErrorCode

ELIGIBLE: dict[int, tuple[list[int] | None, list[int] | None]] = {
    0: ([], []),
    1: ([2, 3], [1]),
    2: (None, None),
}


class FakeBroker:
    """Tells of one topic with three partitions, one partition an answer."""

    eligible = ELIGIBLE
    tells = True
    deleted: ClassVar[dict[str, int]] = {}

    def __init__(self, _bootstrap: str) -> None: ...

    def __enter__(self) -> "FakeBroker":
        return self

    def __exit__(self, *_: object) -> None: ...

    def offers(self, api: str) -> bool:
        assert api == "DescribeTopicPartitions"
        return self.tells

    def call(self, request: msgspec.Struct, _response: type[Any]) -> Any:
        if isinstance(request, DeleteTopicsRequest):
            return DeleteTopicsResponse(
                responses=[DeletableTopicResult(name=name, error_code=error) for name, error in self.deleted.items()]
            )
        if isinstance(request, DescribeTopicPartitionsRequest):
            return self._partition(request)
        partitions = [MetadataResponsePartition(0, at, -1, 7, [1, 2, 3], []) for at in self.eligible]
        brokers = [MetadataResponseBroker(number, f"host-{number}", 1) for number in (1, 2, 3)]
        return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(0, "t", partitions=partitions)])

    def _partition(self, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        at = request.cursor.partition_index if request.cursor else 0
        elr, last = self.eligible[at]
        partition = DescribeTopicPartitionsResponsePartition(
            partition_index=at, eligible_leader_replicas=elr, last_known_elr=last
        )
        topic = DescribeTopicPartitionsResponseTopic(name="t", partitions=[partition])
        return DescribeTopicPartitionsResponse(
            topics=[topic], next_cursor=Cursor("t", at + 1) if at + 1 in self.eligible else None
        )


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> type[FakeBroker]:
    class Own(FakeBroker):
        pass

    monkeypatch.setattr(topic_requests, "Client", Own)
    return Own


def described(*words: str) -> str:
    done = CliRunner().invoke(topics, ["describe", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_eligible_and_the_last_of_them_are_shown_of_every_answer(broker: type[FakeBroker]) -> None:
    rows = json.loads(described("t", "-o", "json"))
    assert [(row["eligible"], row["last eligible"]) for row in rows] == [([], []), ([2, 3], [1]), ([], [])]
    heading, _, second, _ = described("t").splitlines()
    assert "eligible" in heading
    assert "last eligible" in heading
    assert second.split()[-2:] == ["2,3", "1"]


def test_where_there_are_none_nothing_is_shown_of_them(broker: type[FakeBroker]) -> None:
    broker.eligible = {0: ([], []), 1: (None, None)}
    assert "eligible" not in described("t")


def test_an_older_broker_tells_of_none(broker: type[FakeBroker]) -> None:
    broker.tells = False
    assert "eligible" not in described("t")


def test_what_was_deleted_is_told_also_where_another_could_not_be(broker: type[FakeBroker]) -> None:
    broker.deleted = {
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a": 0,
        "in": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "b": 0,
    }
    done = CliRunner().invoke(topics, ["delete", *broker.deleted])
    assert done.stdout == "deleted a\ndeleted b\n"
    assert isinstance(done.exception, CommandError)
    assert str(done.exception) == "gone: UNKNOWN_TOPIC_OR_PARTITION; in: INVALID_TOPIC_EXCEPTION"
