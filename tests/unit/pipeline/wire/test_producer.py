"""Every row once and in order, whatever brokers answer, or do not."""

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest

from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.errors import DeadlineError, SettingError
from ottla.pipeline.wire.producer import Producer
from ottla.pipeline.wire.producer_errors import (
    DeliveryTimeoutError,
    FencedError,
    RecordTooLargeError,
    RefusedError,
    TransactionTooLongError,
)
from ottla.pipeline.wire.producer_settings import ProducerSettings, producer_settings
from ottla.pipeline.wire.producer_transaction import Offset
from ottla.runtime.errors import ErrorCode
from tests.unit.pipeline.wire.fake_cluster import FakeCluster


def producer(cluster: FakeCluster, name: str | None = None, **settings: Any) -> Producer:
    return Producer(cast(Cluster, cluster), ProducerSettings(**settings), name)


def rows(count: int, partition: int | None = None, size: int = 8) -> pa.RecordBatch:
    columns: dict[str, Any] = {"value": [f"{number:0{size}}" for number in range(count)]}
    if partition is not None:
        columns["partition"] = pa.array([partition] * count, pa.int32())
    return pa.record_batch(columns)


def texts(count: int, size: int = 8) -> list[bytes]:
    return [f"{number:0{size}}".encode() for number in range(count)]


def test_rows_of_a_partition_stay_in_order() -> None:
    cluster = FakeCluster(t=3)
    table = pa.record_batch({"value": texts(1000), "partition": [number % 3 for number in range(1000)]})
    with producer(cluster, batch_bytes=500) as sending:
        sending.send(table, "t")
    for index in range(3):
        assert cluster.values("t", index) == texts(1000)[index::3]
    assert len(cluster.batches) > 30


def test_a_broker_that_has_no_producer_id_yet_is_asked_again() -> None:
    cluster = FakeCluster(t=1)
    cluster.coordinator_codes["InitProducerId"].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2)
    with producer(cluster) as sending:
        sending.send(rows(3), "t")
    assert cluster.values("t", 0) == texts(3)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, DeadlineError),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, RefusedError),
    ],
)
def test_a_broker_that_gives_no_producer_id_is_told_of(code: ErrorCode, error: type[Exception]) -> None:
    cluster = FakeCluster(t=1)
    cluster.coordinator_codes["InitProducerId"].extend([code] * 9)
    with pytest.raises(error, match=code.name):
        producer(cluster).claim()


def test_the_column_wins_then_the_key_then_turns() -> None:
    cluster = FakeCluster(t=2)
    with producer(cluster) as sending:
        sending.send(
            pa.record_batch(
                {
                    "key": [b"21", b"21", b"abc", None],
                    "value": [b"a", b"b", b"c", None],
                    "partition": pa.array([1, None, None, 1], pa.int32()),
                }
            ),
            "t",
        )
    # the Java client puts 21 and abc into 0 and 1 of two
    assert cluster.log["t", 0] == [(b"21", b"b")]
    assert cluster.log["t", 1] == [(b"21", b"a"), (b"abc", b"c"), (None, None)]


def test_rows_go_to_the_topics_that_they_name() -> None:
    cluster = FakeCluster(a=1, b=1)
    with producer(cluster) as sending:
        sending.send(pa.record_batch({"topic": ["a", "b", "a"], "value": ["1", "2", "3"]}))
    assert (cluster.values("a", 0), cluster.values("b", 0)) == ([b"1", b"3"], [b"2"])


def test_a_topic_that_got_partitions_is_seen_by_the_next_producer_and_by_one_that_lives_long() -> None:
    cluster = FakeCluster(t=1)
    sending = producer(cluster)
    sending.send(rows(1), "t")
    sending.flush()
    assert cluster.forgotten == 1
    sending.send(rows(1), "t")
    sending.flush()
    assert cluster.forgotten == 1
    sending._looked_s["t"] -= 300
    sending.send(rows(1), "t")
    sending.flush()
    assert cluster.forgotten == 2
    with producer(cluster) as another:
        another.send(rows(1), "t")
    assert cluster.forgotten == 3


RETRIED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@pytest.mark.parametrize("code", RETRIED)
def test_what_may_pass_is_tried_again_with_the_same_sequence(code: ErrorCode) -> None:
    cluster = FakeCluster(t=2)
    cluster.codes["t", 0].extend([code, code])
    with producer(cluster, batch_bytes=500) as sending:
        sending.send(rows(100, 0), "t")
        sending.send(rows(100, 1), "t")
    assert cluster.values("t", 0) == cluster.values("t", 1) == texts(100)
    assert [sequence for place, sequence, _ in cluster.batches if place == ("t", 0)][:3] == [0, 0, 0]


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_lost_connection_neither_loses_nor_doubles(lost: str) -> None:
    cluster = FakeCluster(t=1)
    cluster.losses["t", 0].extend(["", lost, "", lost])
    with producer(cluster, batch_bytes=500) as sending:
        sending.send(rows(200, 0), "t")
    assert cluster.values("t", 0) == texts(200)
    assert cluster.forgotten > 1


def test_a_leader_that_moved_is_followed() -> None:
    cluster = FakeCluster(t=1)

    def moves(api: str) -> None:
        if len(cluster.batches) == 2:
            cluster.leaders["t", 0] = 1

    cluster.before = moves
    with producer(cluster, batch_bytes=500) as sending:
        sending.send(rows(200, 0), "t")
    assert cluster.values("t", 0) == texts(200)


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    cluster = FakeCluster(t=1)
    cluster.largest = 300
    with producer(cluster) as sending:
        sending.send(rows(100, 0), "t")
        sending.send(rows(100, 0), "t")
    assert cluster.values("t", 0) == texts(100) * 2


def test_a_record_that_is_too_large_is_named_with_the_limit() -> None:
    cluster = FakeCluster(t=1)
    with pytest.raises(RecordTooLargeError, match=r"t-0: a record makes \d+ bytes, and kafka.max.request.size is 1000"):
        _send(cluster, rows(1, 0, 2000), request_bytes_max=1000)
    cluster.largest = 300
    with pytest.raises(RecordTooLargeError, match=r"t-0: .* the topic's max.message.bytes is smaller"):
        _send(cluster, rows(3, 0, 2000))


def _send(cluster: FakeCluster, batch: pa.RecordBatch, topic: str | None = "t", **settings: Any) -> None:
    with producer(cluster, **settings) as sending:
        sending.send(batch, topic)


@pytest.mark.parametrize("leaderless", [True, False])
def test_what_does_not_pass_in_time_is_named(leaderless: bool) -> None:
    cluster = FakeCluster(t=1)
    cluster.codes["t", 0].extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
    if leaderless:
        cluster.leaders["t", 0] = -1
    said = "it has no leader" if leaderless else "NOT_ENOUGH_REPLICAS"
    with pytest.raises(DeliveryTimeoutError, match=rf"t-0: not taken in kafka.delivery.timeout.ms=1; last: {said}"):
        _send(cluster, rows(1, 0), delivery_timeout_ms=1)


def test_what_a_broker_refuses_is_named() -> None:
    cluster = FakeCluster(t=1)
    cluster.codes["t", 0].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RefusedError, match="t-0 takes no records: TOPIC_AUTHORIZATION_FAILED"):
        _send(cluster, rows(1, 0))


def test_rows_that_belong_nowhere_are_refused() -> None:
    cluster = FakeCluster(t=1)
    with pytest.raises(RefusedError, match="t: partition 5 is asked for, and there are 1"):
        _send(cluster, rows(1, 5))
    with pytest.raises(RefusedError, match="Say which topic"):
        _send(cluster, rows(1, 0), None)
    with pytest.raises(RefusedError, match="A row's topic is null"):
        _send(cluster, pa.record_batch({"topic": ["t", None], "value": ["1", "2"]}), None)


def test_it_holds_no_more_than_it_may() -> None:
    cluster = FakeCluster(t=2)
    with producer(cluster, buffer_bytes=40_000, batch_bytes=1000) as sending:
        for _ in range(20):
            sending.send(rows(500), "t")
            assert sending._held_bytes < 20_000
            assert not any(lane.waiting or lane.ready for lane in sending._lanes.values())
    assert len(cluster.values("t", 0)) + len(cluster.values("t", 1)) == 10_000


# -- transactions -----------------------------------------------------------------------------------------------------


def place(number: int) -> Offset:
    return Offset("g", "t", 0, number, "told")


def test_rows_and_offset_are_there_together() -> None:
    cluster = FakeCluster(t=2)
    with producer(cluster, "x") as sending:
        sending.begin()
        sending.send(rows(10, 1), "t")
        sending.flush()
        assert cluster.values("t", 1) == []
        sending.commit(place(3))
    assert cluster.values("t", 1) == texts(10)
    assert cluster.offsets["g"] == {("t", 0): (3, "told")}


def test_an_aborted_transaction_leaves_neither() -> None:
    cluster = FakeCluster(t=1)
    with producer(cluster, "x") as sending:
        sending.begin()
        sending.send(rows(10), "t")
        sending.flush()
        sending.abort()
        sending.begin()
        sending.send(rows(2), "t")
        sending.commit()
    assert cluster.values("t", 0) == texts(2)
    assert cluster.offsets["g"] == {}


def test_who_was_replaced_can_end_nothing() -> None:
    cluster = FakeCluster(t=1)
    old, new = producer(cluster, "x"), producer(cluster, "x")
    old.begin()
    old.send(rows(10), "t")
    old.flush()
    new.begin()
    new.send(rows(2), "t")
    with pytest.raises(FencedError, match="Another attempt has taken over transaction x"):
        old.commit(place(1))
    new.commit(place(1))
    assert cluster.values("t", 0) == texts(2)


def test_a_transaction_that_was_open_too_long_is_no_fencing() -> None:
    cluster = FakeCluster(t=1)
    sending = producer(cluster, "x", transaction_timeout_ms=1)
    sending.begin()
    assert sending.transaction is not None
    sending.transaction._began_s -= 1
    sending.send(rows(1), "t")
    cluster.epochs["x"] += 1  # as the coordinator does that aborts it
    with pytest.raises(TransactionTooLongError, match=r"kafka\.transaction\.timeout.ms is 1: write fewer rows"):
        sending.commit()


@pytest.mark.parametrize(
    "api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
)
def test_a_coordinator_that_is_not_through_yet_is_asked_again(api: str) -> None:
    cluster = FakeCluster(t=1)
    cluster.coordinator_codes[api].extend([ErrorCode.CONCURRENT_TRANSACTIONS] * 3)
    with producer(cluster, "x") as sending:
        sending.begin()
        sending.send(rows(1), "t")
        sending.commit(place(1))
    assert cluster.values("t", 0) == texts(1)
    assert cluster.asked.count(api) == 4
    cluster.coordinator_codes["InitProducerId"].extend([ErrorCode.CONCURRENT_TRANSACTIONS] * 9)
    with pytest.raises(DeadlineError, match=r"InitProducerId of transaction x .* CONCURRENT_TRANSACTIONS"):
        producer(cluster, "x").claim()


def test_a_timeout_that_brokers_do_not_allow_is_shortened_unless_it_was_asked_for() -> None:
    cluster = FakeCluster(t=1)
    cluster.coordinator_codes["InitProducerId"].append(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    producer(cluster, "x").claim()
    cluster.coordinator_codes["InitProducerId"].append(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(RefusedError, match="INVALID_TRANSACTION_TIMEOUT"):
        producer(cluster, "x", transaction_timeout_ms=900_000).claim()


@pytest.mark.parametrize("nothing", [lambda sending: sending.commit(), lambda sending: sending.abort()])
def test_a_transaction_of_nothing_asks_nobody(nothing: Callable[[Producer], None]) -> None:
    cluster = FakeCluster(t=1)
    sending = producer(cluster, "x")
    sending.begin()
    nothing(sending)
    assert cluster.asked == ["InitProducerId"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"compression.type": "brotli"}, "must be one of none"),
        ({"acks": "1"}, "only all is supported"),
        ({"batch.size": "0"}, "must be a whole number from 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(told: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        producer_settings(told)
