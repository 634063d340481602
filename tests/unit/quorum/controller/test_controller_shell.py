"""The controller's shell: when responses leave, and what a lost leadership takes along."""

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.listener import LeaderAndEpoch
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.controller.controller_bench import OTHER, SELF, Bench, create


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


def elected_with(count: int) -> tuple[Bench, list[list[rpc.ControllerResponse]]]:
    """A controller that has just become active, and what was asked before."""
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.follow()
    bench.quorum.leader = LeaderAndEpoch(SELF, 3)
    early = [bench.ask(**create(f"t{number}")) for number in range(count)]
    bench.controller.on_leader_change(bench.quorum.leader)
    return bench, early


def test_what_waited_for_an_activation_is_taken_up_over_turns_and_in_its_order() -> None:
    """A hundred brokers ask a new controller at once, each for a thousand partitions: it has to vote and be fetched from in between."""
    bench, early = elected_with(100)
    begun = bench.controller.requests_waiting
    assert 50 < begun < 100, "a few are decided at once"
    late = bench.ask(**create("late"))
    assert bench.controller.requests_waiting == begun + 1
    for _ in range(10):
        bench.loop.advance(1)
    assert bench.controller.requests_waiting == 0
    bench.commit()
    assert list(bench.loader.image.topics_by_name) == [*(f"t{number}" for number in range(100)), "late"]
    assert all(each[0].create_topics.topics[0].error_code == ErrorCode.NONE for each in [*early, late])


def test_who_waits_for_a_turn_that_does_not_come_is_told_at_once() -> None:
    bench, early = elected_with(100)
    bench.follow(4)
    assert [each[0].error_code for each in early] == [ErrorCode.NOT_CONTROLLER] * 100
    bench.lead(5).loop.advance(10)
    assert len(bench.commit().loader.image.topics_by_name) == 0


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


def test_a_controller_that_leaves_begins_nothing_of_itself() -> None:
    bench = Bench(session_timeout_ms=9000).lead().commit()
    bench.broker(1)
    bench.controller.leave()
    before = len(bench.quorum.log)
    bench.loop.advance(20_000)

    assert len(bench.quorum.log) == before, "nobody is fenced"


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
