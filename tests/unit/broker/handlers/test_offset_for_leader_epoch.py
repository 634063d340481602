"""OffsetForLeaderEpoch: of many partitions some are looked at in a turn of the loop. Where epochs end, the tests of the log say."""

import asyncio
from typing import Any, cast

import pytest

from ottla.broker.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site


@pytest.mark.parametrize("version", range(2, 5))
def test_many_partitions_are_looked_at_over_turns(site: Site, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr("ottla.broker.handlers.offset_for_leader_epoch.PIECE", 2)
    looked: list[tuple[str, int]] = []

    def missing(topic: str, index: int) -> ErrorCode:
        looked.append((topic, index))
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    cast(Any, site.broker.replicas).missing_error = missing
    asked = [
        OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(index, -1, 0) for index in (3, 2, 1)]) for topic in "ab"
    ]

    async def send() -> None:
        site.send(OffsetForLeaderEpochRequest(-2, asked), version)
        assert (looked, len(site.written)) == ([("a", 3), ("a", 2)], 0)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(send())
    topics = site.received("OffsetForLeaderEpochResponse", version).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(topic.topic, [(each.partition, each.error_code) for each in topic.partitions]) for topic in topics] == [
        (name, [(index, unknown) for index in (3, 2, 1)]) for name in "ab"
    ]
