"""A caller whose connection broke asks again, and is not served twice."""

from typing import Any

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.attempts import ANSWERS_BYTES_MAX, Attempts
from ottla.quorum.metadata.views import BROKER_RESOURCE
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.controller.controller_bench import Bench, create, grown


def deleted(name: str) -> dict[str, Any]:
    return {"delete_topics": rpc.DeleteTopicsRequest(topics=[rpc.DeleteTopicsRequest.Topic(name=name)])}


def configured(name: str, value: str) -> dict[str, Any]:
    change = rpc.IncrementalAlterConfigsRequest.Change(name=name, value=value)
    resource = rpc.IncrementalAlterConfigsRequest.Resource(resource_type=BROKER_RESOURCE, changes=[change])
    return {"incremental_alter_configs": rpc.IncrementalAlterConfigsRequest(resources=[resource])}


def moved(*replicas: int) -> dict[str, Any]:
    """Partition 0 of topic a; without replicas the move is given up."""
    asked = rpc.AlterPartitionReassignmentsRequest.Partition(replicas=replicas, cancel=not replicas)
    topic = rpc.AlterPartitionReassignmentsRequest.Topic(name="a", partitions=[asked])
    return {"alter_partition_reassignments": rpc.AlterPartitionReassignmentsRequest(topics=[topic])}


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


def test_an_attempt_to_unregister_that_reaches_the_next_controller_finds_the_broker_gone() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    body = {"unregister_broker": rpc.UnregisterBrokerRequest(broker_id=1)}
    bench.ask(b"1", **body)
    bench.commit().follow()
    bench.lead(3)
    before = len(bench.quorum.log)
    again, by_another = bench.ask(b"1", **body), bench.ask(b"2", **body)
    assert (again[0].error_code, again[0].WhichOneof("body")) == (ErrorCode.NONE, "unregister_broker")
    assert by_another[0].error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert len(bench.quorum.log) == before


def test_an_attempt_to_unregister_that_reaches_the_next_controller_spares_the_broker_that_registered_since() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    body = {"unregister_broker": rpc.UnregisterBrokerRequest(broker_id=1)}
    bench.ask(b"1", **body)
    bench.commit()
    bench.broker(1)
    bench.follow()
    bench.lead(3)
    before = len(bench.quorum.log)
    again = bench.ask(b"1", **body)
    assert (again[0].error_code, again[0].WhichOneof("body")) == (ErrorCode.NONE, "unregister_broker")
    assert len(bench.quorum.log) == before
    bench.ask(b"2", **body)
    assert len(bench.quorum.log) == before + 1


def test_an_attempt_to_delete_that_reaches_the_next_controller_spares_the_topic_that_has_the_name_by_then() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.ask(**create("a"))
    bench.commit()
    bench.ask(b"1", **deleted("a"))
    bench.commit()
    bench.ask(b"2", **create("a"))
    bench.commit().follow()
    bench.lead(3)
    before = len(bench.quorum.log)
    again = bench.ask(b"1", **deleted("a"))
    assert again[0].delete_topics.topics[0].error_code == ErrorCode.NONE
    assert len(bench.quorum.log) == before
    bench.ask(b"3", **deleted("a"))
    assert len(bench.quorum.log) == before + 1


def test_what_was_taken_back_with_its_transaction_was_not_done() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    bench.ask(b"1", **create("large", 1000))
    bench.turns(11).commit(5)
    bench.follow()
    bench.lead(3).commit()
    bench.ask(b"2", **create("large", 10))
    bench.commit()
    again = bench.ask(b"1", **create("large", 1000))
    assert again[0].create_topics.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_what_was_done_in_a_transaction_was_done() -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    bench.ask(b"1", **create("large", 1000))
    bench.turns(11).commit().follow()
    bench.lead(3)
    again = bench.ask(b"1", **create("large", 1000))
    assert again[0].create_topics.topics[0].error_code == ErrorCode.NONE


def test_an_attempt_that_comes_late_takes_nothing_back_that_others_did() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.ask(**create("a"))
    bench.ask(b"1", **deleted("a"))
    bench.ask(b"2", **configured("retention.ms", "1"))
    bench.commit().follow()
    bench.lead(3)
    bench.ask(**create("a"))
    bench.ask(**configured("retention.ms", "2"))
    again = [bench.ask(b"1", **deleted("a")), bench.ask(b"2", **configured("retention.ms", "1"))]
    bench.commit()
    assert again[0][0].delete_topics.topics[0].error_code == ErrorCode.NONE
    assert again[1][0].incremental_alter_configs.resources[0].error_code == ErrorCode.NONE
    assert list(bench.loader.image.topics_by_name) == ["a"]
    assert bench.loader.image.configs == {(BROKER_RESOURCE, ""): {"retention.ms": "2"}}


def with_partition() -> tuple[Bench, int]:
    """Three brokers and a topic with one replica; one of the two that do not have it."""
    bench = Bench().lead().commit()
    for broker_id in (1, 2, 3):
        bench.broker(broker_id)
    bench.ask(**create("a"))
    (first,) = bench.commit().loader.image.topics_by_name["a"].partitions[0].replicas
    return bench, first % 3 + 1


def code_of_move(answers: list[rpc.ControllerResponse]) -> int:
    return answers[0].alter_partition_reassignments.topics[0].partitions[0].error_code


def test_an_attempt_that_comes_late_begins_no_move_that_was_given_up_since() -> None:
    bench, elsewhere = with_partition()
    bench.ask(b"1", **moved(elsewhere))
    bench.commit().follow()
    bench.lead(3)
    bench.ask(**moved())
    again = bench.ask(b"1", **moved(elsewhere))
    bench.commit()
    assert code_of_move(again) == ErrorCode.NONE
    assert bench.loader.image.topics_by_name["a"].partitions[0].adding == ()


def test_an_attempt_that_comes_late_gives_no_move_up_that_was_begun_since() -> None:
    bench, elsewhere = with_partition()
    bench.ask(**moved(elsewhere))
    bench.ask(b"1", **moved())
    bench.commit().follow()
    bench.lead(3)
    bench.ask(**moved(elsewhere))
    again = bench.ask(b"1", **moved())
    bench.commit()
    assert code_of_move(again) == ErrorCode.NONE
    assert bench.loader.image.topics_by_name["a"].partitions[0].adding == (elsewhere,)


def test_who_gave_a_move_up_is_told_so_by_the_next_controller() -> None:
    bench, elsewhere = with_partition()
    bench.ask(**moved(elsewhere))
    bench.ask(b"1", **moved())
    bench.commit().follow()
    bench.lead(3)
    again, by_another = bench.ask(b"1", **moved()), bench.ask(b"2", **moved())
    codes = [code_of_move(each) for each in (again, by_another)]
    assert codes == [ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


@pytest.mark.parametrize("body", [create("b", 2), grown("a", 5), deleted("a")], ids=["create", "grow", "delete"])
def test_an_attempt_that_reaches_a_controller_that_was_started_again_finds_its_work_done(body: dict[str, Any]) -> None:
    """It was killed between the commit and the answer, and nobody tells it of a commit that its image has already."""
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.ask(**create("a"))
    bench.ask(b"1", **body)
    bench.commit().restart(3)
    before = len(bench.quorum.log)
    again, by_another = bench.ask(b"1", **body), bench.ask(b"2", **body)
    name = str(again[0].WhichOneof("body"))
    assert (getattr(again[0], name).topics[0].error_code, len(bench.quorum.log)) == (ErrorCode.NONE, before)
    assert getattr(by_another[0], name).topics[0].error_code != ErrorCode.NONE


def test_a_controller_that_was_started_again_spares_the_topic_that_has_the_name_by_then() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.ask(**create("a"))
    bench.ask(b"1", **deleted("a"))
    bench.ask(b"2", **create("a"))
    bench.commit().restart(3)
    again = bench.ask(b"1", **deleted("a"))
    bench.commit()
    assert again[0].delete_topics.topics[0].error_code == ErrorCode.NONE
    assert list(bench.loader.image.topics_by_name) == ["a"]


@pytest.mark.parametrize("remembered", [0, 4], ids=["from the beginning", "from the middle of the transaction"])
def test_what_was_taken_back_before_a_start_was_not_done(remembered: int) -> None:
    bench = Bench(records_per_batch_max=100).lead().commit()
    bench.broker(1)
    bench.ask(b"1", **create("large", 1000))
    bench.turns(11).commit(5)
    bench.follow()
    bench.lead(3).commit()
    bench.ask(b"2", **create("small"))
    attempts = Attempts()
    attempts.recall(bench.commit().quorum.log[remembered:])
    assert (attempts.was_committed(b"1"), attempts.was_committed(b"2")) == (False, True)


def large_answer(size: int) -> rpc.ControllerResponse:
    return rpc.ControllerResponse(error_message="x" * size)


def test_large_answers_are_forgotten_before_many_small_ones_would_be() -> None:
    attempts = Attempts()
    for number in range(5):
        attempts.keep(bytes([number]), 0, large_answer(ANSWERS_BYTES_MAX // 2 - 100))
    assert [attempts.answer(bytes([number])) is not None for number in range(5)] == [False, False, False, True, True]


def test_the_latest_answer_is_kept_however_large_it_is() -> None:
    attempts = Attempts()
    attempts.keep(b"small", 0, large_answer(1))
    attempts.keep(b"large", 0, large_answer(2 * ANSWERS_BYTES_MAX))
    assert attempts.answer(b"small") is None
    assert attempts.answer(b"large") == (0, large_answer(2 * ANSWERS_BYTES_MAX))


def test_an_answer_that_is_kept_again_and_all_of_a_leadership_before_count_no_more() -> None:
    attempts = Attempts()
    attempts.keep(b"0", 0, large_answer(1))
    for _ in range(3):
        attempts.keep(b"1", 0, large_answer(ANSWERS_BYTES_MAX // 2))
    assert attempts.answer(b"0") is not None
    attempts.forget_answers()
    attempts.keep(b"2", 0, large_answer(ANSWERS_BYTES_MAX // 3))
    attempts.keep(b"3", 0, large_answer(ANSWERS_BYTES_MAX // 3))
    assert attempts.answer(b"2") is not None
