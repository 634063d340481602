"""Whoever waits for replicas while the leadership moves is told where to (KIP-951)."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.test_delete_records import Bench

BATCH = encode_batch([Record(0, 1, b"key", b"value")])


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    cast(Any, made.site.broker.replicas).leader_of = lambda *_: (2, 6)
    yield made
    made.log.abandon()
    made.loop.close()


@pytest.mark.parametrize("partitions", [1, 2], ids=["one partition", "several"])
@pytest.mark.parametrize("version", [9, 10, 12])
def test_a_produce_that_waits_is_told_the_next_leader(bench: Bench, version: int, partitions: int) -> None:
    parts = [PartitionProduceData(index, BATCH) for index in range(partitions)]
    bench.site.send(ProduceRequest(None, -1, 1_500, [TopicProduceData("flights", partition_data=parts)]), version)
    assert not bench.answered
    bench.partition.follow(2, leader_epoch=6, partition_epoch=2, isr=(2,), replicas=(1, 2), backoff_max_ms=1)

    answer = bench.site.received("ProduceResponse", version)

    first = answer.responses[0].partition_responses[0]
    assert first.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (2, 6)
        assert [(each.node_id, each.host) for each in answer.node_endpoints] == [(2, "host2.plaintext")]


def test_one_that_waited_too_long_is_told_of_no_leader(bench: Bench) -> None:
    parts = [PartitionProduceData(0, BATCH)]
    bench.site.send(ProduceRequest(None, -1, 1_500, [TopicProduceData("flights", partition_data=parts)]), 10)
    bench.site.timers.advance(1_500)
    answer = bench.site.received("ProduceResponse", 10)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert answer.node_endpoints == []
