"""Which broker is told of which transaction's end, how often, and when that is over."""

from typing import Any
from unittest.mock import patch

from ottla.broker.coordinator.decisions.transactions import marker_queue
from ottla.broker.coordinator.decisions.transactions.effects import Marker
from ottla.broker.coordinator.decisions.transactions.marker_queue import (
    BACKOFF_MS_MAX,
    FIRST_BACKOFF_MS,
    LOOKS_MAX,
    NOWHERE,
    PLACE_BYTES,
    Batch,
    MarkerQueue,
    Task,
)
from ottla.broker.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.runtime.errors import ErrorCode

NONE = ErrorCode.NONE
Place = tuple[str, int]


class Site:
    def __init__(self, **leaders: int | None) -> None:
        """``t0=1``: broker 1 leads t-0."""
        self.leaders: dict[Place, int | None] = {(name[0], int(name[1:])): leader for name, leader in leaders.items()}
        self.queue = MarkerQueue(lambda *place: self.leaders.get(place))

    def add(self, producer_id: int, *places: Place) -> Task:
        task = Task(Marker(producer_id, 3, True, 7, 2), places, lambda: None)
        assert self.queue.add(task)
        return task

    def take(self, broker_id: int) -> Batch:
        batch = self.queue.take(broker_id)
        assert batch is not None
        return batch


def told(batch: Batch) -> dict[int, list[Place]]:
    return {task.marker.producer_id: places for task, places in batch.parts}


def answer(batch: Batch, **errors: ErrorCode) -> WriteTxnMarkersResponse:
    """NONE but for those named (``t0=...``)."""
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                task.marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic, [WritableTxnMarkerPartitionResult(index, errors.get(f"{topic}{index}", NONE))]
                    )
                    for topic, index in places
                ],
            )
            for task, places in batch.parts
        ]
    )


T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


def test_all_that_one_broker_leads_goes_in_one_request() -> None:
    site = Site(t0=1, t1=2, u0=1)
    first, second = site.add(5, T0, T1, U0), site.add(6, T0)
    assert site.queue.brokers() == [1, 2]
    batch = site.take(1)
    assert told(batch) == {5: [T0, U0], 6: [T0]}
    marker: Any = batch.markers()[0]
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (5, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (7, 2)
    assert [(each.name, each.partition_indexes) for each in marker.topics] == [("t", [0]), ("u", [0])]
    assert site.queue.answered(batch, answer(batch)) == ([second], [])
    other = site.take(2)
    assert site.queue.answered(other, answer(other)) == ([first], [])
    assert len(site.queue) == 0
    assert site.queue.take(1) is None


def test_what_is_more_than_a_request_takes_goes_in_several_each_place_in_one() -> None:
    site = Site(t0=1, t1=1, u0=1)
    first, second = site.add(5, T0, T1, U0), site.add(6, T0)
    with patch.object(marker_queue, "REQUEST_BYTES_MAX", 2 * (PLACE_BYTES + 1)):
        batches = [site.take(1), site.take(1)]
    assert [told(each) for each in batches] == [{5: [T0, T1]}, {5: [U0], 6: [T0]}]
    assert site.queue.brokers() == []
    assert site.queue.answered(batches[1], answer(batches[1])) == ([second], [])
    assert site.queue.answered(batches[0], answer(batches[0])) == ([first], [])


def test_one_place_goes_however_large_it_is() -> None:
    site = Site(t0=1, t1=1)
    site.add(5, T0, T1)
    with patch.object(marker_queue, "REQUEST_BYTES_MAX", 1):
        assert [told(site.take(1)), told(site.take(1))] == [{5: [T0]}, {5: [T1]}]


def test_a_partition_that_is_missing_for_long_is_not_told() -> None:
    site = Site(t0=1)
    task = site.add(5, T0, T1)
    batch = site.take(1)
    assert told(batch) == {5: [T0]}
    assert site.queue.answered(batch, answer(batch)) == ([], [])
    for _ in range(LOOKS_MAX - 1):
        assert site.queue.unsure() == [task]
        assert site.queue.look_again() == []  # metadata that change do not shorten it
        assert site.queue.retry(task)
    assert not site.queue.retry(task)
    assert len(site.queue) == 0


def test_a_topic_that_was_made_anew_is_told_though_the_metadata_lacked_it_for_a_moment() -> None:
    """The producer wrote to the new one while this node knew the old one."""
    site = Site(t0=1)
    task = site.add(5, T0)
    batch = site.take(1)
    assert site.queue.answered(batch, answer(batch, t0=ErrorCode.NOT_LEADER_OR_FOLLOWER)) == ([], [task])
    del site.leaders[T0]
    assert site.queue.look_again() == []
    assert site.queue.retry(task)
    site.leaders[T0] = 2
    assert site.queue.look_again() == []
    assert told(site.take(2)) == {5: [T0]}
    assert task.missing == {}


def test_one_that_waits_for_a_missing_partition_may_be_cancelled() -> None:
    site = Site()
    task = site.add(5, T0)
    site.queue.cancel(task)
    assert site.queue.unsure() == []
    assert not site.queue.retry(task)


def test_what_failed_is_told_again_with_growing_pauses() -> None:
    site = Site(t0=1, t1=1)
    task = site.add(5, T0, T1)
    for _ in range(10):
        batch = site.take(1)
        assert site.queue.answered(batch, answer(batch, t1=ErrorCode.NOT_ENOUGH_REPLICAS)) == ([], [task])
        assert site.queue.take(1) is None
        assert site.queue.retry(task)
    assert told(site.take(1)) == {5: [T1]}
    assert FIRST_BACKOFF_MS < task.backoff_ms == BACKOFF_MS_MAX


def test_a_partition_that_has_seen_a_later_epoch_has_nothing_left_to_end() -> None:
    site = Site(t0=1)
    task = site.add(5, T0)
    batch = site.take(1)
    assert site.queue.answered(batch, answer(batch, t0=ErrorCode.INVALID_PRODUCER_EPOCH)) == ([task], [])


def test_whoever_says_that_a_later_coordinator_was_there_is_asked_again_until_this_one_resigns() -> None:
    site = Site(t0=1)
    task = site.add(5, T0)
    batch = site.take(1)
    fenced = answer(batch, t0=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert site.queue.answered(batch, fenced) == ([], [task])


def test_an_answer_that_says_nothing_of_a_partition_is_a_failure() -> None:
    site = Site(t0=1)
    task = site.add(5, T0)
    assert site.queue.answered(site.take(1), WriteTxnMarkersResponse()) == ([], [task])


def test_where_no_answer_comes_it_is_told_again_at_once() -> None:
    site = Site(t0=1)
    site.add(5, T0)
    batch = site.take(1)
    assert site.queue.lost(batch) == []
    assert told(site.take(1)) == {5: [T0]}


def test_a_new_leader_is_told_and_what_the_old_one_answers_counts_for_nothing() -> None:
    site = Site(t0=1)
    task = site.add(5, T0)
    batch = site.take(1)
    site.leaders[T0] = 2
    assert site.queue.look_again() == []
    assert site.queue.answered(batch, answer(batch)) == ([], [])
    assert site.queue.lost(batch) == []
    other = site.take(2)
    assert site.queue.answered(other, answer(other)) == ([task], [])


def test_one_that_moved_before_it_was_sent_goes_to_the_new_leader_only() -> None:
    site = Site(t0=1)
    site.add(5, T0)
    site.leaders[T0] = 2
    site.queue.look_again()
    assert site.queue.take(1) is None
    assert told(site.take(2)) == {5: [T0]}


def test_one_without_a_leader_waits_for_one() -> None:
    site = Site(t0=NOWHERE)
    site.add(5, T0)
    assert site.queue.brokers() == []
    site.leaders[T0] = 3
    site.queue.look_again()
    assert told(site.take(3)) == {5: [T0]}


def test_nothing_more_is_sent_or_done_for_one_that_is_cancelled() -> None:
    site = Site(t0=1, t1=1)
    task = site.add(5, T0)
    batch = site.take(1)
    later = site.add(6, T1)
    for each in (task, later):
        site.queue.cancel(each)
    assert site.queue.answered(batch, answer(batch)) == ([], [])
    assert site.queue.take(1) is None
    assert site.queue.look_again() == []
    assert not site.queue.retry(task)
