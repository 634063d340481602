"""The controller's shell: when responses leave, what a lost leadership takes along, who is fenced without a request."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.batches import into_batches
from ottla.quorum.controller.controller import Controller
from ottla.quorum.controller.decisions.features import supported_ranges
from ottla.quorum.controller.decisions.state import ControllerSettings, ControllerState
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, NotLeaderError, QuorumMembers
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.voter_changes import OnChanged
from ottla.runtime.clock import SystemClock
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.host import Host
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.timers import LoopTimers
from tests.unit.quorum.metadata.test_metadata_image import DictStore

SELF, OTHER = 1, 2


class ManualLoop:
    """As much of a loop as timers need; its time stands still until `advance`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._calls: list[tuple[float, int, Callable[[], object], asyncio.TimerHandle]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, cast(asyncio.AbstractEventLoop, self))
        self._count += 1
        self._calls.append((when, self._count, lambda: callback(*args), handle))
        return handle

    def advance(self, ms: int) -> None:
        end = self.now + ms / 1000
        while due := sorted(each for each in self._calls if each[0] <= end):
            when, _, call, handle = due[0]
            self._calls.remove(due[0])
            self.now = max(self.now, when)
            if not handle.cancelled():
                call()
        self.now = end


class FakeQuorum:
    """A log that commits when it is told to; `lead` and `follow` say who leads it."""

    def __init__(self) -> None:
        self.node_id = SELF
        self.leader = LeaderAndEpoch(None, 0)
        self.log: list[CommittedBatch] = []
        self.delivered = 0
        self.resigned: list[int] = []
        self.known = QuorumMembers()
        self.upgrades: list[tuple[OnChanged, bool]] = []

    def members(self) -> QuorumMembers:
        return self.known

    def upgrade_kraft_version(self, on_done: OnChanged, *, validate_only: bool) -> None:
        self.upgrades.append((on_done, validate_only))

    @property
    def is_leader(self) -> bool:
        return self.leader.leader_id == SELF

    @property
    def next_offset(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else 0

    def append(self, records: list[bytes], epoch: int, cause: str = "") -> int:
        if not self.is_leader or epoch != self.leader.epoch:
            raise NotLeaderError(self.leader)
        base = self.next_offset
        self.log.append(CommittedBatch(base, base + len(records) - 1, epoch, 0, list(records), cause))
        return self.log[-1].last_offset

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)


class Bench:
    """A controller on a fake quorum."""

    def __init__(self, **settings: Any) -> None:
        self.loop = ManualLoop()
        self.quorum = FakeQuorum()
        self.loader = MetadataLoader(DictStore())
        host = Host(SystemClock(), Random(3), RealDisk(), lambda path: DictStore(), SyncLater())
        settings.setdefault("cluster_id", "c")
        self.controller = Controller(
            self.quorum,
            self.loader,
            host,
            LoopTimers(cast(asyncio.AbstractEventLoop, self.loop)),
            ControllerSettings(**settings),
            lambda host, port, on_refused: self.knocked.append((port, on_refused)),
        )
        self.knocked: list[tuple[int, Callable[[], None]]] = []
        self.answers: list[rpc.ControllerResponse] = []

    def lead(self, epoch: int = 1) -> "Bench":
        self.quorum.leader = LeaderAndEpoch(SELF, epoch)
        self.controller.on_leader_change(self.quorum.leader)
        return self

    def follow(self, epoch: int = 2) -> None:
        """Another node leads and what was not committed here is gone."""
        self.quorum.log = self.quorum.log[: self.quorum.delivered]
        self.quorum.leader = LeaderAndEpoch(OTHER, epoch)
        self.controller.on_leader_change(self.quorum.leader)

    def commit(self, batches: int | None = None) -> "Bench":
        """Commits what was appended, or so many batches of it."""
        end = len(self.quorum.log) if batches is None else self.quorum.delivered + batches
        while self.quorum.delivered < end:
            batch = self.quorum.log[self.quorum.delivered]
            self.quorum.delivered += 1
            self.loader.on_commit(batch)
            self.controller.on_commit(batch)
        return self

    def turns(self, count: int) -> "Bench":
        """Lets that many batches be appended, or gives up after some milliseconds."""
        end = len(self.quorum.log) + count
        for _ in range(5 * count):
            if len(self.quorum.log) < end:
                self.loop.advance(1)
        return self

    def ask(self, request_id: bytes = b"", **body: Any) -> "list[rpc.ControllerResponse]":
        """Asks; the list holds the answer once it came."""
        answers: list[rpc.ControllerResponse] = []
        request = rpc.ControllerRequest(origin="a test", request_id=request_id, **body)
        self.controller.handle(request, answers.append)
        return answers

    def broker(self, broker_id: int, handle: Callable[..., None] | None = None) -> int:
        """Registers and unfences a broker; its epoch."""
        registration = rpc.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=bytes([broker_id]) * 16,
            features=supported_ranges(),
            endpoints=[pb.Endpoint(name="PLAINTEXT", host="h", port=9000 + broker_id)],
        )
        answers = self.ask(register_broker=registration)
        self.commit()
        epoch: int = answers[0].register_broker.broker_epoch
        self.heartbeat(broker_id, epoch, handle)
        self.commit()
        return epoch

    def heartbeat(self, broker_id: int, epoch: int, handle: Callable[..., None] | None = None) -> None:
        beat = rpc.BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=self.quorum.next_offset
        )
        (handle or self.controller.handle)(rpc.ControllerRequest(broker_heartbeat=beat), self.answers.append)

    def is_fenced(self, broker_id: int) -> bool:
        return self.loader.image.brokers[broker_id].fenced


def create(name: str, partitions: int = 1) -> dict[str, Any]:
    topic = rpc.CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    return {"create_topics": rpc.CreateTopicsRequest(topics=[topic])}


def kinds(batches: Sequence[CommittedBatch]) -> list[list[str | None]]:
    return [[pb.MetadataRecord.FromString(each).WhichOneof("body") for each in batch.records] for batch in batches]


def test_the_first_leader_of_an_empty_log_writes_the_feature_levels() -> None:
    bench = Bench().lead()
    assert [batch.cause for batch in bench.quorum.log] == ["bootstrap"]
    bench.commit().follow()
    bench.lead(3)
    assert len(bench.quorum.log) == 1, "only the first one does"
    assert bench.loader.image.features["metadata.version"] > 0


def test_a_response_leaves_when_its_records_are_committed_and_in_order() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    first, second = bench.ask(**create("a")), bench.ask(**create("b"))
    assert (first, second) == ([], [])
    bench.commit(1)
    assert ([each.create_topics.topics[0].error_code for each in first], second) == ([0], [])
    assert list(bench.loader.image.topics_by_name) == ["a"], "told after it is in the image"
    bench.commit()
    assert len(second) == 1
    assert bench.quorum.log[-1].cause == "create_topics by a test"


def test_an_answer_without_records_waits_for_what_it_was_decided_on() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.ask(**create("a"))
    again = bench.ask(**create("a"))
    assert again == []
    bench.commit()
    assert again[0].create_topics.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    at_once = bench.ask(**create("a"))
    assert len(at_once) == 1


def test_a_controller_that_does_not_lead_says_who_does() -> None:
    bench = Bench()
    assert bench.ask(**create("a")) == [rpc.ControllerResponse(error_code=ErrorCode.NOT_CONTROLLER)]
    bench.follow()
    refused = rpc.ControllerResponse(error_code=ErrorCode.NOT_CONTROLLER, leader_id=OTHER)
    assert bench.ask(**create("a")) == [refused]


def test_a_request_whose_id_leaves_no_room_in_the_log_is_refused_and_the_controller_stays() -> None:
    """It goes into the log with what it causes: a batch that is too large would have cost the leadership, one node after another."""
    bench = Bench().lead().commit()
    bench.broker(1)
    (answer,) = bench.ask(bytes(65), **create("a"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert bench.controller.is_active
    bench.ask(bytes(64), **create("a"))
    assert "a" in bench.commit().loader.image.topics_by_name


def test_a_request_that_comes_between_election_and_activation_waits_for_it() -> None:
    """The epoch's first record is not committed yet; who were told to try again would come a pause too late."""
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.follow()
    bench.quorum.leader = LeaderAndEpoch(SELF, 3)  # elected
    early = bench.ask(**create("a"))
    assert early == []
    bench.controller.on_leader_change(bench.quorum.leader)
    bench.commit()
    assert [each.create_topics.topics[0].error_code for each in early] == [ErrorCode.NONE]


def test_who_waits_for_an_activation_that_does_not_come_is_told() -> None:
    bench = Bench()
    bench.quorum.leader = LeaderAndEpoch(SELF, 1)
    early = bench.ask(**create("a"))
    bench.follow()
    assert [each.error_code for each in early] == [ErrorCode.NOT_CONTROLLER]
    bench.quorum.leader = LeaderAndEpoch(SELF, 3)
    stopped = bench.ask(**create("a"))
    bench.controller.stop()
    assert [each.error_code for each in stopped] == [ErrorCode.NOT_CONTROLLER]
    assert [each.error_code for each in bench.ask(**create("a"))] == [ErrorCode.NOT_CONTROLLER]


def test_a_lost_leadership_takes_what_was_pending_along() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    committed = bench.ask(**create("kept"))
    bench.commit()
    waiting = bench.ask(**create("lost"))
    bench.follow()
    assert [each.error_code for each in waiting] == [ErrorCode.NOT_CONTROLLER]
    assert len(committed) == 1
    assert not bench.controller.is_active
    bench.lead(3)
    again = bench.ask(**create("lost"))
    bench.commit()
    assert again[0].create_topics.topics[0].error_code == ErrorCode.NONE
    assert list(bench.loader.image.topics_by_name) == ["kept", "lost"]


def test_a_controller_that_leaves_answers_what_it_decided_and_decides_no_more() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    before = bench.ask(**create("a"))
    bench.controller.leave()
    after = bench.ask(**create("b"))
    assert ([each.error_code for each in after], before) == ([ErrorCode.NOT_CONTROLLER], [])

    bench.commit()
    assert before[0].create_topics.topics[0].error_code == ErrorCode.NONE


def test_who_leaves_does_not_become_the_active_controller() -> None:
    bench = Bench()
    bench.controller.leave()
    bench.lead()

    assert not bench.controller.is_active


def test_a_leadership_that_is_over_before_it_is_told_drops_the_state_too() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.quorum.leader = LeaderAndEpoch(SELF, 2)  # lost and won again; the listener was not told yet
    assert bench.ask(**create("a"))[0].error_code == ErrorCode.NOT_CONTROLLER
    assert not bench.controller.is_active
    bench.controller.on_leader_change(bench.quorum.leader)
    again = bench.ask(**create("a"))
    bench.commit()
    assert again[0].create_topics.topics[0].error_code == ErrorCode.NONE, "the first attempt left nothing behind"


def test_records_that_cannot_be_applied_never_reach_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    before = len(bench.quorum.log)

    def broken(self: ControllerState, record: pb.MetadataRecord) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ControllerState, "replay", broken)
    assert bench.ask(**create("a"))[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (len(bench.quorum.log), bench.quorum.resigned, bench.controller.is_active) == (before, [1], False)
    assert "cannot append what was decided" in caplog.text


def test_a_request_that_nobody_knows_is_refused() -> None:
    bench = Bench().lead().commit()
    assert bench.ask()[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_broken_decider_answers_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench().lead().commit()
    bench.broker(1)

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("ottla.quorum.controller.controller.decide", broken)
    assert bench.ask(**create("a"))[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.controller.is_active


# --- large changes ----------------------------------------------------------------------------------------------------


def test_a_large_topic_is_one_transaction_of_bounded_batches() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    before = len(bench.quorum.log)
    answers = bench.ask(**create("large", 1000))
    bench.turns(11)
    written = bench.quorum.log[before:]
    assert [len(batch.records) for batch in written] == [100] * 10 + [3]
    assert kinds(written)[0][:2] == ["begin_transaction", "topic"]
    assert kinds(written)[-1][-1] == "end_transaction"
    bench.commit(10)
    assert (answers, list(bench.loader.image.topics_by_name)) == ([], [])
    bench.commit()
    assert len(answers) == 1
    assert len(bench.loader.image.topics_by_name["large"].partitions) == 1000


def test_the_next_controller_aborts_a_transaction_that_was_left_open() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    bench.ask(**create("large", 1000))
    bench.turns(11).commit(5)
    bench.follow()
    assert bench.loader.in_transaction
    bench.lead(3)
    assert kinds(bench.quorum.log)[-1] == ["abort_transaction"]
    answers = bench.ask(**create("large", 10))
    bench.commit()
    assert answers[0].create_topics.topics[0].error_code == ErrorCode.NONE
    assert len(bench.loader.image.topics_by_name["large"].partitions) == 10


def test_a_large_topic_is_appended_batch_by_batch_over_turns_of_the_loop() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    before = len(bench.quorum.log)
    bench.ask(**create("large", 1000))
    grown = []
    for _ in range(20):
        grown.append(len(bench.quorum.log) - before)
        bench.loop.advance(1)
    assert list(dict.fromkeys(grown)) == list(range(12)), "never two in one turn"


def test_nothing_comes_between_the_records_of_a_transaction() -> None:
    bench = Bench(records_per_batch_max=100, session_timeout_ms=9000).lead().commit()
    epoch = bench.broker(1)
    bench.broker(2)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)
    same, other = bench.ask(**create("large")), bench.ask(**create("other"))
    bench.heartbeat(1, epoch)
    bench.turns(8).commit()
    assert [each.create_topics.topics[0].error_code for each in (*large, *same, *other)] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]
    causes = [batch.cause for batch in bench.quorum.log]
    assert kinds(bench.quorum.log[-2:-1])[0][-1] == "end_transaction", "the other topic follows the whole transaction"
    assert causes[-12:] == ["create_topics by a test"] * 12
    assert bench.answers[-1].error_code == ErrorCode.NONE


def test_a_heartbeat_that_has_to_wait_counts_before_anybody_is_fenced() -> None:
    bench = Bench(records_per_batch_max=10, session_timeout_ms=9000).lead().commit()
    epoch = bench.broker(1)
    bench.loop.advance(8_990)
    bench.ask(**create("large", 1000))
    bench.heartbeat(1, epoch)
    bench.loop.advance(100)
    assert not bench.commit().is_fenced(1)


def test_a_fencing_waits_for_the_end_of_a_transaction() -> None:
    bench = Bench(records_per_batch_max=100, session_timeout_ms=9000).lead().commit()
    bench.broker(1)
    visit = bench.controller.open()
    bench.broker(2, visit.handle)
    visit.ended()
    bench.loop.advance(495)
    bench.ask(**create("large", 1000))
    bench.turns(2)
    bench.loop.now += 0.010  # the suspicion is due, and the transaction under way
    bench.turns(3)
    bench.loop.advance(100)
    bench.commit()
    last = next(index for index, names in enumerate(kinds(bench.quorum.log)) if "end_transaction" in names)
    fenced = next(index for index, batch in enumerate(bench.quorum.log) if "is fenced" in batch.cause)
    assert fenced > last
    assert bench.is_fenced(2)


def test_a_leadership_lost_in_the_middle_of_a_transaction_is_told_to_all_who_wait() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)
    behind = bench.ask(**create("behind"))
    bench.follow()
    bench.turns(20)
    assert [each.error_code for each in (*large, *behind)] == [ErrorCode.NOT_CONTROLLER] * 2
    bench.lead(3)
    again = bench.ask(**create("large", 1000))
    bench.turns(11).commit()
    assert again[0].create_topics.topics[0].error_code == ErrorCode.NONE


def test_a_quorum_that_refuses_in_the_middle_of_a_transaction_is_told_to_all_who_wait() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)
    behind = bench.ask(**create("behind"))
    bench.quorum.leader = LeaderAndEpoch(OTHER, 2)  # the listener is told a moment later
    bench.turns(1)
    assert [each.error_code for each in (*large, *behind)] == [ErrorCode.NOT_CONTROLLER] * 2


def test_a_transaction_that_cannot_be_applied_gives_the_leadership_up(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    large = bench.ask(**create("large", 1000))
    bench.turns(3)

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ControllerState, "replay", broken)
    bench.turns(1)
    assert [each.error_code for each in large] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert bench.quorum.resigned == [1]


def records(count: int, size: int) -> list[pb.MetadataRecord]:
    return [pb.MetadataRecord(config=pb.Config(value="x" * size)) for _ in range(count)]


def test_batches_are_bounded_by_records_and_by_bytes() -> None:
    def cut(count: int, size: int, *, atomic: bool) -> list[int]:
        batches = into_batches(records(count, size), atomic=atomic, records_max=5, bytes_max=1000, name="n")
        return [len(batch.encoded) for batch in batches]

    assert cut(0, 1, atomic=True) == []
    assert cut(5, 1, atomic=True) == [5]
    assert cut(6, 1, atomic=False) == [5, 1]
    assert cut(6, 1, atomic=True) == [5, 3], "with its beginning and its end"
    assert cut(4, 400, atomic=False) == [2, 2]
    with pytest.raises(KafkaError) as caught:
        cut(1, 1000, atomic=False)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


# --- attempts ---------------------------------------------------------------------------------------------------------


def grown(name: str, count: int) -> dict[str, Any]:
    topic = rpc.CreatePartitionsRequest.Topic(name=name, count=count)
    return {"create_partitions": rpc.CreatePartitionsRequest(topics=[topic])}


def deleted(name: str) -> dict[str, Any]:
    return {"delete_topics": rpc.DeleteTopicsRequest(topics=[rpc.DeleteTopicsRequest.Topic(name=name)])}


def test_a_second_attempt_gets_the_answer_of_the_first() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    before = len(bench.quorum.log)
    first, second = bench.ask(b"1", **create("a")), bench.ask(b"1", **create("a"))
    assert (first, second) == ([], [])
    bench.commit()
    third = bench.ask(b"1", **create("a"))
    assert first == second == third
    assert len(bench.quorum.log) == before + 1
    assert bench.ask(b"2", **create("a"))[0].create_topics.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("body", [create("b", 2), grown("a", 5), deleted("a")], ids=["create", "grow", "delete"])
def test_an_attempt_that_reaches_the_next_controller_finds_its_work_done(body: dict[str, Any]) -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.ask(**create("a"))
    bench.commit()
    lost = bench.ask(b"1", **body)
    bench.commit().follow()
    bench.lead(3)
    before = len(bench.quorum.log)
    again, by_another = bench.ask(b"1", **body), bench.ask(b"2", **body)
    name = str(again[0].WhichOneof("body"))
    result = getattr(again[0], name).topics[0]
    assert (result.error_code, len(bench.quorum.log)) == (ErrorCode.NONE, before)
    assert getattr(by_another[0], name).topics[0].error_code != ErrorCode.NONE
    if name == "create_topics":
        assert result == lost[0].create_topics.topics[0]


def test_an_attempt_whose_first_was_lost_with_its_leadership_is_carried_out() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    lost = bench.ask(b"1", **create("a"))
    bench.follow()
    assert lost[0].error_code == ErrorCode.NOT_CONTROLLER
    bench.lead(3)
    again = bench.ask(b"1", **create("a"))
    bench.commit()
    assert again[0].create_topics.topics[0].error_code == ErrorCode.NONE


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_silent_broker_is_fenced_when_its_session_is_over() -> None:
    bench = Bench(session_timeout_ms=9000).lead().commit()
    bench.broker(1)
    bench.loop.advance(8_900)
    assert not bench.commit().is_fenced(1)
    bench.loop.advance(1_300)
    assert bench.commit().is_fenced(1)
    assert bench.quorum.log[-1].cause == "broker 1 is fenced: no heartbeat within 9000 ms"


def test_a_new_controller_waits_a_whole_session_for_everybody() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.loop.advance(8_000)
    bench.follow()
    bench.lead(3)
    bench.loop.advance(8_900)
    assert not bench.commit().is_fenced(1)
    bench.loop.advance(1_300)
    assert bench.commit().is_fenced(1)


def test_a_controller_that_stood_still_does_not_blame_the_brokers() -> None:
    bench = Bench().lead().commit()
    epoch = bench.broker(1)
    bench.loop.now += 30  # a stopped process: no timer ran, no heartbeat was read
    bench.loop.advance(0)
    assert not bench.commit().is_fenced(1)
    bench.heartbeat(1, epoch)
    bench.loop.advance(8_000)
    assert not bench.commit().is_fenced(1)


def test_a_broken_stream_is_a_sign_of_death() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    bench.broker(1, visit.handle)
    visit.ended()
    bench.loop.advance(490)
    assert not bench.commit().is_fenced(1)
    bench.loop.advance(20)
    assert bench.commit().is_fenced(1)


def test_a_broker_that_comes_back_over_another_stream_lives() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    epoch = bench.broker(1, visit.handle)
    visit.ended()
    bench.loop.advance(300)
    second = bench.controller.open()
    bench.heartbeat(1, epoch, second.handle)
    bench.loop.advance(1000)
    assert not bench.commit().is_fenced(1)


def test_the_end_of_an_older_stream_says_nothing() -> None:
    bench = Bench().lead().commit()
    old, new = bench.controller.open(), bench.controller.open()
    epoch = bench.broker(1, old.handle)
    bench.heartbeat(1, epoch, new.handle)
    old.ended()
    bench.loop.advance(1000)
    assert not bench.commit().is_fenced(1)


def test_after_a_change_of_controllers_a_refused_peer_that_was_never_heard_is_dead() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    heard = bench.broker(2)
    bench.follow()
    bench.lead(3)
    bench.heartbeat(2, heard)
    for broker_id in (1, 2, 9):
        bench.controller.liveness.peer_broken(broker_id)
    bench.loop.advance(600)
    bench.commit()
    assert (bench.is_fenced(1), bench.is_fenced(2)) == (True, False)
    assert bench.answers[-1].error_code == ErrorCode.NONE


def test_a_new_controller_knocks_at_brokers_it_does_not_hear_from_and_believes_a_refusal() -> None:
    """A plain broker has no connection to it whose end would tell: it would keep a whole session's time."""
    bench = Bench().lead().commit()
    for broker_id in (1, 2, 3, 4):
        bench.broker(broker_id)
    heard = bench.loader.image.brokers[4].epoch
    bench.follow()
    bench.lead(3)
    bench.heartbeat(4, heard)
    bench.loop.advance(500)
    assert [port for port, _ in bench.knocked] == [9001, 9002, 9003], "not at the one that speaks"
    bench.knocked[0][1]()  # refused
    bench.knocked[1][1]()  # refused, but it is only late
    bench.heartbeat(2, bench.loader.image.brokers[2].epoch)
    bench.loop.advance(600)
    bench.commit()
    assert [bench.is_fenced(broker_id) for broker_id in (1, 2, 3, 4)] == [True, False, False, False]


def test_a_refusal_that_comes_late_says_nothing_of_a_broker_that_was_heard_from() -> None:
    bench = Bench().lead().commit()
    epoch = bench.broker(1)
    bench.follow()
    bench.lead(3)
    bench.loop.advance(500)
    bench.heartbeat(1, epoch)
    bench.knocked[0][1]()
    bench.loop.advance(1500)
    assert not bench.commit().is_fenced(1)
    bench.loop.advance(2000)
    assert len(bench.knocked) == 1, "who was heard from is left in peace"


def test_leaders_return_to_the_first_replicas_now_and_then() -> None:
    bench = Bench(rebalance_interval_ms=5_000).lead().commit()
    epochs = {broker_id: bench.broker(broker_id) for broker_id in (1, 2)}
    assignment = rpc.ReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = rpc.CreateTopicsRequest.Topic(name="a", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    bench.ask(create_topics=rpc.CreateTopicsRequest(topics=[topic]))
    bench.commit()
    made = bench.loader.image.topics_by_name["a"]
    unseat = pb.PartitionChange(topic_id=made.id, partition_id=0, leader=2)
    bench.quorum.append([pb.MetadataRecord(partition_change=unseat).SerializeToString()], 1)
    bench.commit().lead(2)
    bench.loop.advance(4_000)
    for broker_id, epoch in epochs.items():
        bench.heartbeat(broker_id, epoch)
    bench.loop.advance(1_100)
    bench.commit()
    assert bench.loader.image.topics_by_name["a"].partitions[0].leader == 1


def test_ten_thousand_partitions_do_not_cost_an_idle_controller_anything() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.ask(**create("large", 10_000))
    bench.turns(21).commit()
    assert len(bench.loader.image.topics_by_name["large"].partitions) == 10_000
    before = len(bench.quorum.log)
    bench.loop.advance(8_000)
    assert len(bench.quorum.log) == before
