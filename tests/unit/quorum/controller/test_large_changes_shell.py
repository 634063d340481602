"""What takes many pieces, in the controller's shell: others have their turn, and who asked is answered once, at the end."""

from typing import Any

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions import pieces, sweep
from ottla.quorum.controller.decisions.features import supported_ranges
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.controller_bench import Bench, create

MANY = 4 * sweep.CHANGES_MAX


def replicated(name: str, partitions: int) -> dict[str, Any]:
    topic = rpc.CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=2)
    return {"create_topics": rpc.CreateTopicsRequest(topics=[topic])}


def large(partitions: int = MANY, **settings: Any) -> Bench:
    """Two brokers that share many partitions."""
    bench = Bench(**settings).lead().commit()
    for broker_id in (1, 2):
        bench.broker(broker_id)
    bench.ask(**replicated("many", partitions))
    bench.turns(20).commit()
    return bench


def has_part(bench: Bench, broker_id: int) -> int:
    partitions = bench.commit().loader.image.topics_by_name["many"].partitions.values()
    return sum(broker_id in each.isr or broker_id == each.leader for each in partitions)


def unregister(bench: Bench) -> "list[rpc.ControllerResponse]":
    return bench.ask(unregister_broker=rpc.UnregisterBrokerRequest(broker_id=1))


def test_a_request_that_takes_many_pieces_lets_others_through_and_is_answered_at_the_end() -> None:
    bench = large()
    slow = unregister(bench)
    bench.commit()
    assert 0 < has_part(bench, 1) < MANY
    quick = bench.ask(**create("other"))
    bench.commit()
    assert (len(slow), quick[0].create_topics.topics[0].error_code) == (0, ErrorCode.NONE)
    bench.turns(10).commit()
    assert [each.error_code for each in slow] == [ErrorCode.NONE]
    assert (has_part(bench, 1), list(bench.loader.image.brokers)) == (0, [2])


def test_a_leadership_lost_between_two_pieces_is_told_to_who_waits_for_the_last() -> None:
    bench = large()
    slow = unregister(bench)
    bench.follow()
    bench.loop.advance(5)
    assert [each.error_code for each in slow] == [ErrorCode.NOT_CONTROLLER]


def test_an_attempt_to_unregister_goes_on_with_what_the_controller_before_had_begun() -> None:
    bench = large()
    body = {"unregister_broker": rpc.UnregisterBrokerRequest(broker_id=1)}
    bench.ask(b"1", **body)
    bench.commit()
    assert 0 < has_part(bench, 1) < MANY
    bench.follow()
    bench.lead(3)
    again = bench.ask(b"1", **body)
    bench.turns(10).commit()
    assert [each.error_code for each in again] == [ErrorCode.NONE]
    assert (has_part(bench, 1), list(bench.loader.image.brokers)) == (0, [2])


def test_a_fencing_has_one_piece_a_turn_however_often_sessions_are_checked() -> None:
    """Each check of the sessions used to begin another row of pieces, until they left no time for anything else."""
    bench = large(8_000, session_timeout_ms=120)  # looked at every 15 ms
    epoch, before = bench.loader.image.brokers[2].epoch, len(bench.quorum.log)
    grown = []
    while not bench.commit().is_fenced(1):
        bench.heartbeat(2, epoch)
        bench.loop.advance(1)
        grown.append(len(bench.quorum.log) - before)
        before = len(bench.quorum.log)
    assert max(grown) == 1
    assert has_part(bench, 1) == 0


def test_a_shutdown_goes_on_while_the_broker_knows_already() -> None:
    bench = large()
    beat = rpc.BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=bench.loader.image.brokers[1].epoch,
        want_shut_down=True,
        current_metadata_offset=10**6,
    )
    answers = bench.ask(broker_heartbeat=beat)
    bench.commit()
    assert [each.broker_heartbeat.should_shut_down for each in answers] == [False]
    assert has_part(bench, 1) > 0
    bench.turns(5)
    assert has_part(bench, 1) == 0


def test_the_pieces_of_a_heartbeat_are_no_signs_of_life_after_the_first() -> None:
    """A broker with many partitions in a directory that failed, which died right after it had told: a whole session was waited for
    it since the last of the pieces."""
    bench = Bench().lead().commit()
    for broker_id in (1, 2):
        bench.broker(broker_id)
    place, visit = b"a directory's id", bench.controller.open()
    again = rpc.RegisterBrokerRequest(
        broker_id=1, cluster_id="c", incarnation_id=bytes([1]) * 16, features=supported_ranges(), directories=[place],
        endpoints=[pb.Endpoint(name="PLAINTEXT", host="h", port=9001)],
    )  # fmt: skip
    bench.ask(register_broker=again)
    bench.ask(**replicated("many", MANY))
    bench.turns(20).commit()
    epoch = bench.loader.image.brokers[1].epoch
    beat = rpc.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, offline_directories=[place])
    visit.handle(rpc.ControllerRequest(broker_heartbeat=beat), bench.answers.append)
    visit.ended()
    bench.loop.advance(2)
    assert 0 < has_part(bench, 1) < MANY
    bench.knocked[-1][1]()  # refused
    bench.loop.advance(20)
    assert (has_part(bench, 1), bench.is_fenced(1)) == (0, True)


def test_the_next_controller_goes_on_where_this_one_was_interrupted() -> None:
    bench = large()
    beat = rpc.BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=bench.loader.image.brokers[1].epoch, want_shut_down=True
    )
    bench.ask(broker_heartbeat=beat)
    bench.commit()
    bench.follow(2)
    bench.loop.advance(100)
    assert has_part(bench, 1) > 0
    bench.lead(3)
    bench.loop.advance(20)
    assert has_part(bench, 1) == 0


def test_what_waits_for_a_transaction_goes_on_after_it() -> None:
    bench = large(records_per_batch_max=100)
    slow = unregister(bench)
    bench.ask(**create("other", 900))
    bench.loop.advance(50)
    bench.commit()
    assert [each.error_code for each in slow] == [ErrorCode.NONE]
    assert len(bench.loader.image.topics_by_name["other"].partitions) == 900


def test_a_chore_that_cannot_be_written_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench().lead().commit()
    bench.broker(1)

    def refuse(*args: Any) -> None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "not at this level")

    bench.lead(2)
    monkeypatch.setattr("ottla.quorum.controller.leadership.check_records", refuse)
    bench.loop.advance(100)
    assert caplog.text.count("not at this level") <= 1


def test_moving_very_many_partitions_takes_pieces_and_tells_of_each() -> None:
    bench = large()
    asked = rpc.AlterPartitionReassignmentsRequest
    partitions = [asked.Partition(partition_index=index, replicas=[1]) for index in (*range(MANY), 0, MANY)]
    topics = [asked.Topic(name="many", partitions=partitions)]
    request = asked(topics=topics, allow_replication_factor_change=True)
    slow = bench.ask(alter_partition_reassignments=request)
    bench.commit()
    assert 0 < has_part(bench, 2) < MANY
    quick = bench.ask(**create("other"))
    bench.commit()
    assert (len(slow), len(quick)) == (0, 1)
    bench.turns(10).commit()
    [topic] = slow[0].alter_partition_reassignments.topics
    codes = [each.error_code for each in topic.partitions]
    assert codes == [0] * MANY + [ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert has_part(bench, 2) == 0


def test_another_attempt_gets_the_answer_though_the_last_piece_changed_nothing() -> None:
    """It was told that there is nothing to give up, of everything that the first attempt had given up."""
    bench = large(sweep.CHANGES_MAX)
    bench.broker(3)
    asked = rpc.AlterPartitionReassignmentsRequest
    begun = [asked.Partition(partition_index=index, replicas=[1, 3]) for index in range(sweep.CHANGES_MAX)]
    bench.ask(alter_partition_reassignments=asked(topics=[asked.Topic(name="many", partitions=begun)]))
    bench.loop.advance(10)
    given_up = [asked.Partition(partition_index=index, cancel=True) for index in range(sweep.CHANGES_MAX)]
    request = asked(topics=[asked.Topic(name="many", partitions=given_up)])
    first = bench.commit().ask(request_id=b"1", alter_partition_reassignments=request)
    bench.loop.advance(10)
    second = bench.commit().ask(request_id=b"1", alter_partition_reassignments=request)
    bench.loop.advance(10)
    assert [each.error_code for each in first[0].alter_partition_reassignments.topics[0].partitions] == [0] * len(begun)
    assert first == second


def test_who_asks_the_same_as_another_in_between_is_told_what_there_was_when_he_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "LOOKS_MAX", 2)
    bench = large(partitions=1)
    bench.ask(**create("second"))
    bench.ask(**create("third"))
    listing = {"list_partition_reassignments": rpc.ListPartitionReassignmentsRequest(all_partitions=True)}
    early = bench.ask(request_id=b"early", **listing)
    asked = rpc.AlterPartitionReassignmentsRequest
    topic = asked.Topic(name="many", partitions=[asked.Partition(partition_index=0, replicas=[2, 3])])
    bench.broker(3)
    begun = bench.ask(alter_partition_reassignments=asked(topics=[topic]))
    bench.commit()
    assert begun[0].alter_partition_reassignments.topics[0].partitions[0].error_code == ErrorCode.NONE
    late = bench.ask(request_id=b"late", **listing)
    bench.loop.advance(10)
    assert [each.name for each in late[0].list_partition_reassignments.topics] == ["many"]
    assert len(early) == 1


def test_leaders_go_on_to_return_after_a_large_change_that_came_between() -> None:
    bench = large(rebalance_interval_ms=5_000)
    made = bench.loader.image.topics_by_name["many"]
    for index, each in list(made.partitions.items()):
        unseat = pb.PartitionChange(topic_id=made.id, partition_id=index, leader=each.replicas[1])
        bench.quorum.append([pb.MetadataRecord(partition_change=unseat).SerializeToString()], 1)
    bench.commit().lead(2)
    bench.loop.advance(4_999)
    bench.ask(**create("other", 2_000))
    bench.turns(10).commit()
    bench.loop.advance(200)
    partitions = bench.commit().loader.image.topics_by_name["many"].partitions.values()
    assert all(each.leader == each.replicas[0] for each in partitions)
