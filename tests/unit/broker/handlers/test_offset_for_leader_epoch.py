"""OffsetForLeaderEpoch: of many partitions some are looked at in a turn of the loop. Where epochs end, the tests of the log say."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.handlers.offset_for_leader_epoch import end_of_epoch
from ottla.broker.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.log.errors import DamagedLogError
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


@pytest.mark.parametrize(("is_compacted", "is_damaged", "end"), [(True, False, 14), (True, True, 3), (False, False, 3)])
def test_who_has_read_what_compaction_took_since_is_not_told_that_it_was_cut_off(
    is_compacted: bool, is_damaged: bool, end: int
) -> None:
    """librdkafka would begin anew at `auto.offset.reset`. Followers, which may have had something else there, are told by Fetch."""

    def next_written(offset: int) -> int:
        assert is_compacted
        if is_damaged:
            raise DamagedLogError("00000000000000000000.log", 0, offset, "rotten")
        return offset + 11

    log = SimpleNamespace(
        gaps_allowed=is_compacted,
        log_start_offset=0,
        log_end_offset=40,
        end_offset_for_epoch=lambda epoch: (epoch, 3),
        next_written=next_written,
    )
    partition = SimpleNamespace(log=log, require_leader=lambda _: None)
    replicas = cast(Any, SimpleNamespace(partitions={("a", 0): partition}))
    told = end_of_epoch(replicas, "a", OffsetForLeaderPartition(0, 5, 0))
    assert (told.error_code, told.leader_epoch, told.end_offset) == (ErrorCode.NONE, 0, end)
