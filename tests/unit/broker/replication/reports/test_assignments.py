"""Directory assignments on their way to the controller: batched, one request at a time, until they are answered."""

import pytest

from ottla.broker.replication.reports import assignments
from ottla.broker.replication.reports.assignments import RETRY_MS, AssignmentQueue
from ottla.proto import controller_pb2 as pb
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.fake_controller import FakeController

TOPIC, OTHER = b"T" * 16, b"O" * 16
FIRST, SECOND = b"1" * 16, b"2" * 16


class World:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.controller = FakeController()
        self.queue = AssignmentQueue(self.controller, 1, lambda: 77, self.timers)

    @property
    def asked(self) -> list[pb.AssignReplicasToDirectoriesRequest]:
        return [each.request.assign_replicas_to_directories for each in self.controller.asked]

    def sent(self) -> dict[tuple[bytes, int], bytes]:
        """The one request's assignments."""
        (body,) = self.asked
        assert (body.broker_id, body.broker_epoch) == (1, 77)
        return {
            (topic.topic_id, index): directory.id
            for directory in body.directories
            for topic in directory.topics
            for index in topic.partitions
        }

    def answer(self, error: int | None = 0, each: int = 0) -> None:
        """None: no answer came."""
        body = self.asked[0]
        if error is None:
            self.controller.answer(None)
            return
        response = pb.ControllerResponse(error_code=error)
        for directory in body.directories:
            told = response.assign_replicas_to_directories.directories.add(id=directory.id)
            for topic in directory.topics:
                answered = told.topics.add(topic_id=topic.topic_id)
                for index in topic.partitions:
                    answered.partitions.add(partition_index=index, error_code=each)
        self.controller.answer(response)


@pytest.fixture
def world() -> World:
    return World()


def test_what_comes_together_leaves_together(world: World) -> None:
    for topic, index, directory in [(TOPIC, 0, FIRST), (TOPIC, 1, SECOND), (OTHER, 0, FIRST)]:
        world.queue.submit(topic, index, directory)
    world.timers.advance(2)
    assert world.sent() == {(TOPIC, 0): FIRST, (TOPIC, 1): SECOND, (OTHER, 0): FIRST}
    world.answer()
    world.timers.advance(10 * RETRY_MS)
    assert world.asked == []


def test_one_request_is_under_way_and_the_latest_word_counts(world: World) -> None:
    world.queue.submit(TOPIC, 0, FIRST)
    world.timers.advance(2)
    world.queue.submit(TOPIC, 0, FIRST)  # on its way already
    world.queue.submit(TOPIC, 1, FIRST)
    world.queue.submit(TOPIC, 1, SECOND)
    world.timers.advance(2)
    assert world.sent() == {(TOPIC, 0): FIRST}
    world.answer()
    world.timers.advance(2)
    assert world.sent() == {(TOPIC, 1): SECOND}


@pytest.mark.parametrize("error", [None, ErrorCode.STALE_BROKER_EPOCH])
def test_it_is_sent_until_it_is_answered(world: World, error: int | None) -> None:
    world.queue.submit(TOPIC, 0, FIRST)
    for _ in range(3):
        world.timers.advance(RETRY_MS + 1)
        assert world.sent() == {(TOPIC, 0): FIRST}
        world.answer(error)
        world.queue.submit(TOPIC, 1, FIRST)
        world.timers.advance(RETRY_MS // 2)
        assert world.asked == []
        world.queue.submit(TOPIC, 1, FIRST)
        world.timers.advance(RETRY_MS)
        assert world.sent() == {(TOPIC, 0): FIRST, (TOPIC, 1): FIRST}
        world.answer()
        world.queue.submit(TOPIC, 0, FIRST)


def test_a_newer_word_is_not_replaced_by_the_repetition_of_an_older(world: World) -> None:
    world.queue.submit(TOPIC, 0, FIRST)
    world.timers.advance(2)
    world.queue.submit(TOPIC, 0, SECOND)
    world.answer(None)
    world.timers.advance(RETRY_MS + 1)
    assert world.sent() == {(TOPIC, 0): SECOND}


def test_what_went_and_came_back_before_anybody_was_told_is_not_told(world: World) -> None:
    world.queue.submit(TOPIC, 0, SECOND, FIRST, (FIRST,))
    world.queue.submit(TOPIC, 0, FIRST, FIRST, (FIRST, SECOND))
    world.timers.advance(2)
    assert world.asked == []


def test_what_comes_back_while_the_controller_is_told_that_it_went_is_told_too(world: World) -> None:
    """The metadata say so still, and will not when the first word has arrived."""
    world.queue.submit(TOPIC, 0, SECOND, FIRST, (FIRST,))
    world.timers.advance(2)
    world.queue.submit(TOPIC, 0, FIRST, FIRST, (FIRST, SECOND))
    world.answer()
    world.timers.advance(2)
    assert world.sent() == {(TOPIC, 0): FIRST}
    (moved,) = world.asked[0].directories[0].topics[0].moved
    assert (moved.partition_index, [*moved.earlier_directories]) == (0, [FIRST, SECOND])


def test_only_of_what_was_moved_is_it_told_where_it_lay_before(world: World) -> None:
    world.queue.submit(TOPIC, 0, SECOND, FIRST)
    world.queue.submit(TOPIC, 1, SECOND, FIRST, (FIRST,))
    world.timers.advance(2)
    (topic,) = world.asked[0].directories[0].topics
    assert [*topic.partitions] == [0, 1]
    assert [each.partition_index for each in topic.moved] == [1]


def test_a_refused_replica_is_not_asked_for_again(world: World) -> None:
    world.queue.submit(TOPIC, 0, FIRST)
    world.timers.advance(2)
    world.answer(0, ErrorCode.UNKNOWN_TOPIC_ID)
    world.timers.advance(10 * RETRY_MS)
    assert world.asked == []


def test_requests_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "REPLICAS_PER_REQUEST_MAX", 2)
    for index in range(5):
        world.queue.submit(TOPIC, index, FIRST)
    sizes = []
    for _ in range(3):
        world.timers.advance(2)
        sizes.append(len(world.sent()))
        world.answer()
    assert sizes == [2, 2, 1]


def test_nothing_is_sent_after_the_end(world: World) -> None:
    world.queue.submit(TOPIC, 0, FIRST)
    world.queue.close()
    world.timers.advance(2)
    assert world.asked == []
