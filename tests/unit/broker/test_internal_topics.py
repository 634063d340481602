"""Internal topics: what they are like, and that they are made once, whoever asks, as long as somebody waits."""

from collections.abc import Callable

import pytest
from msgspec import structs

from ottla.broker import internal_topics
from ottla.broker.internal_topics import GROUPS, SHARE_GROUPS, TRANSACTIONS, InternalTopics, internal_topic
from ottla.proto import controller_pb2 as controller_pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import ControllerView, TopicView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.settings.server import ServerConfig
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.broker.handlers.conftest import broker_view

SETTINGS = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.quorum.voters": "9@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092",
}
Done = Callable[[controller_pb.ControllerResponse | None], None]
DONE, NOBODY = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE


class Bench:
    """A broker of three, and a controller that answers when the test says so."""

    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.image = MetadataImage()
        self.image.brokers = {number: broker_view(number) for number in (1, 2, 3)}
        self.asked: list[controller_pb.CreateTopicsRequest.Topic] = []
        self.waiting: list[Done] = []
        self.told: list[tuple[str, int]] = []
        self.topics = InternalTopics(self, ServerConfig(SETTINGS), self.image, self.timers, 1)

    def call_back(self, request: controller_pb.ControllerRequest, on_done: Done, timeout_ms: int) -> None:
        (topic,) = request.create_topics.topics
        self.asked.append(topic)
        self.waiting.append(on_done)

    def require(self, who: str, name: str = GROUPS, timeout_ms: int = 30_000) -> None:
        self.topics.require(name, lambda error: self.told.append((who, error)), timeout_ms)

    def answer(self, error: int = ErrorCode.NONE) -> None:
        topic = controller_pb.CreateTopicsResponse.Topic(name=GROUPS, error_code=error, error_message="no")
        response = controller_pb.CreateTopicsResponse(topics=[topic])
        self.waiting.pop(0)(controller_pb.ControllerResponse(create_topics=response))

    def learn(self, name: str = GROUPS) -> None:
        """This node hears of a topic."""
        self.image.topics_by_name[name] = TopicView(name, b"C" * 16, {})
        self.topics.publish(MetadataDelta(), self.image)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_is_asked_for_once_and_all_who_wait_are_told_when_this_node_knows_it(bench: Bench) -> None:
    bench.require("a")
    bench.require("b")
    assert len(bench.asked) == 1
    bench.answer()
    assert bench.told == []
    bench.learn()
    assert bench.told == [("a", DONE), ("b", DONE)]
    bench.timers.advance(60_000)
    assert (len(bench.asked), len(bench.told)) == (1, 2)


def test_one_that_exists_is_not_made(bench: Bench) -> None:
    bench.learn()
    bench.require("a")
    assert (bench.asked, bench.told) == ([], [("a", DONE)])


def test_one_that_somebody_else_made_meanwhile_is_as_good(bench: Bench) -> None:
    bench.require("a")
    bench.answer(ErrorCode.TOPIC_ALREADY_EXISTS)
    bench.learn()
    assert bench.told == [("a", DONE)]


def test_a_refusal_is_tried_again_with_growing_pauses_while_somebody_waits(bench: Bench) -> None:
    bench.require("a")
    times = []
    for _ in range(5):
        bench.answer(ErrorCode.INVALID_REPLICATION_FACTOR)
        while not bench.waiting:
            bench.timers.advance(1)
        times.append(bench.timers.time_ms)
    assert times == [100, 300, 700, 1_500, 3_100]
    bench.answer()
    bench.learn()
    assert bench.told == [("a", DONE)]


def test_who_waited_long_enough_hears_why_it_is_not_there(bench: Bench) -> None:
    bench.require("a", timeout_ms=50)
    bench.require("b", timeout_ms=500)
    bench.answer(ErrorCode.INVALID_REPLICATION_FACTOR)
    bench.timers.advance(60)
    assert bench.told == [("a", ErrorCode.INVALID_REPLICATION_FACTOR)]
    bench.timers.advance(440)
    assert bench.told[1:] == [("b", ErrorCode.INVALID_REPLICATION_FACTOR)]


def test_nobody_asks_on_when_nobody_waits_and_the_pause_holds_for_who_comes_next(bench: Bench) -> None:
    bench.require("a", timeout_ms=10)
    bench.answer(ErrorCode.POLICY_VIOLATION)
    bench.timers.advance(20)
    bench.require("b", timeout_ms=10)
    assert len(bench.asked) == 1
    bench.timers.advance(200)
    assert [who for who, _ in bench.told] == ["a", "b"]
    assert len(bench.asked) == 1
    bench.require("c")
    assert len(bench.asked) == 2


def test_a_controller_that_does_not_answer_is_asked_again(bench: Bench) -> None:
    bench.require("a", timeout_ms=150)
    bench.waiting.pop(0)(None)
    bench.timers.advance(100)
    assert len(bench.asked) == 2
    bench.timers.advance(50)
    assert bench.told == [("a", NOBODY)]


def test_one_that_was_deleted_right_after_it_was_made_is_made_again(bench: Bench) -> None:
    bench.require("a")
    bench.answer()
    bench.timers.advance(100)
    assert len(bench.asked) == 2


def test_an_answer_that_comes_when_all_is_over_means_nothing(bench: Bench) -> None:
    bench.require("a")
    bench.topics.close()
    bench.answer()
    bench.require("b")
    assert bench.told == [("a", NOBODY), ("b", NOBODY)]
    assert len(bench.asked) == 1


def test_so_many_wait_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topics, "WAITERS_MAX", 2)
    for who in ("a", "b", "c"):
        bench.require(who)
    assert bench.told == [("c", NOBODY)]


def test_a_cluster_that_is_smaller_than_the_setting_gets_fewer_replicas(bench: Bench) -> None:
    del bench.image.brokers[3]
    bench.require("a")
    bench.answer(ErrorCode.INVALID_REPLICATION_FACTOR)
    bench.image.brokers[3] = broker_view(3)
    bench.timers.advance(100)
    assert [each.replication_factor for each in bench.asked] == [2, 3]


@pytest.mark.parametrize(("fenced", "factor"), [(False, 2), (True, 3)])
def test_a_broker_that_stopped_in_order_counts_and_one_that_is_about_to_does_not(
    bench: Bench, fenced: bool, factor: int
) -> None:
    leaving = structs.replace(bench.image.brokers[3], in_controlled_shutdown=True, fenced=fenced)
    bench.image.brokers[3] = leaving
    bench.require("a")
    assert [each.replication_factor for each in bench.asked] == [factor]


@pytest.mark.parametrize(
    ("name", "prefix", "more"),
    [
        (GROUPS, "offsets.topic", {"cleanup.policy": "compact", "compression.type": "producer"}),
        (
            TRANSACTIONS,
            "transaction.state.log",
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": "2",
            },
        ),
        (
            SHARE_GROUPS,
            "share.coordinator.state.topic",
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "retention.ms": "-1",
                "min.insync.replicas": "2",
            },
        ),
    ],
)
def test_each_is_as_kafkas_and_as_the_settings_say(name: str, prefix: str, more: dict[str, str]) -> None:
    settings = {f"{prefix}.num.partitions": "7", f"{prefix}.segment.bytes": "2000000"}
    topic = internal_topic(name, ServerConfig({**SETTINGS, **settings}))
    assert topic is not None
    assert (topic.partitions, topic.replication_factor) == (7, 3)
    assert topic.configs == {"segment.bytes": "2000000", **more}


def test_no_other_name_is_internal() -> None:
    assert internal_topic("flights", ServerConfig(SETTINGS)) is None


def test_a_cluster_that_starts_is_given_a_moment_for_its_brokers(bench: Bench) -> None:
    bench.image.controllers = {number: ControllerView(number, b"", (), {}) for number in (1, 2, 3)}
    known = bench.image.brokers
    bench.image.brokers = {1: known[1]}
    bench.require("a")
    bench.timers.advance(500)
    assert bench.asked == []
    bench.image.brokers = known
    bench.timers.advance(internal_topics.FIRST_BACKOFF_MS)
    assert [each.replication_factor for each in bench.asked] == [3]


def test_brokers_that_never_come_are_not_waited_for(bench: Bench) -> None:
    bench.image.controllers = {number: ControllerView(number, b"", (), {}) for number in (1, 2, 3)}
    bench.image.brokers = {1: bench.image.brokers[1]}
    bench.require("a")
    for _ in range(internal_topics.PATIENCE_MS // internal_topics.FIRST_BACKOFF_MS):
        bench.timers.advance(internal_topics.FIRST_BACKOFF_MS)
    assert [each.replication_factor for each in bench.asked] == [1]
