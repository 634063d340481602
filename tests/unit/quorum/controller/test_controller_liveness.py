"""Who is fenced without a request, and what else the controller does of itself."""

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.controller.controller_bench import Bench, create


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


def test_a_controller_that_stood_still_after_a_stream_broke_hears_first_what_came_meanwhile() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    epoch = bench.broker(1, visit.handle)
    visit.ended()
    bench.loop.now += 2
    bench.loop.advance(0)
    assert not bench.commit().is_fenced(1)
    bench.heartbeat(1, epoch, bench.controller.open().handle)
    bench.loop.advance(1000)
    assert not bench.commit().is_fenced(1)


def test_who_is_not_heard_from_after_a_controller_stood_still_either_is_dead() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    bench.broker(1, visit.handle)
    visit.ended()
    bench.loop.now += 2
    bench.loop.advance(490)
    assert not bench.commit().is_fenced(1)
    bench.loop.advance(20)
    assert bench.commit().is_fenced(1)


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


def test_a_broker_that_came_back_and_dies_a_moment_later_is_not_waited_for() -> None:
    """The first suspicion had not been settled, and the second was taken for it: a session passed until the broker was fenced."""
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    epoch = bench.broker(1, visit.handle)
    visit.ended()
    bench.loop.advance(100)
    second = bench.controller.open()
    bench.heartbeat(1, epoch, second.handle)
    bench.loop.advance(100)
    second.ended()
    bench.loop.advance(490)
    assert not bench.commit().is_fenced(1)
    bench.loop.advance(20)
    assert bench.commit().is_fenced(1)


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
    bench.heartbeat(2, bench.loader.image.brokers[2].epoch)
    bench.knocked[0][1]()  # refused
    bench.knocked[1][1]()  # refused, but it spoke up meanwhile
    bench.loop.advance(5)
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


def test_a_broker_whose_connection_ended_and_whose_door_is_shut_is_dead_at_once() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    bench.broker(1, visit.handle)
    visit.ended()
    assert [port for port, _ in bench.knocked] == [9001]
    bench.knocked[0][1]()  # refused
    bench.loop.advance(1)
    assert bench.commit().is_fenced(1)


def test_the_door_of_a_dying_process_may_shut_after_its_connection_ended() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    bench.broker(1, visit.handle)
    visit.ended()
    bench.loop.advance(60)  # somebody, or the system, took the first connection
    assert [port for port, _ in bench.knocked] == [9001, 9001]
    bench.knocked[1][1]()
    bench.loop.advance(1)
    assert bench.commit().is_fenced(1)
    bench.loop.advance(500)
    assert len(bench.knocked) == 2, "it is known to be dead"


def test_a_broker_that_comes_back_is_not_knocked_at_and_no_refusal_counts() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    epoch = bench.broker(1, visit.handle)
    visit.ended()
    bench.heartbeat(1, epoch, bench.controller.open().handle)
    bench.knocked[0][1]()
    bench.loop.advance(1_000)
    assert not bench.commit().is_fenced(1)
    assert len(bench.knocked) == 1


def test_a_refusal_of_an_earlier_leadership_says_nothing() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    bench.broker(1, visit.handle)
    visit.ended()
    bench.follow()
    bench.lead(3)
    bench.knocked[0][1]()
    bench.loop.advance(1_000)
    assert not bench.commit().is_fenced(1)


def test_the_broker_of_the_controller_that_died_is_asked_after_as_soon_as_there_is_another() -> None:
    """Its connection breaks before anybody is elected in its place."""
    bench = Bench().lead().commit()
    for broker_id in (1, 2):
        bench.broker(broker_id)
    bench.follow()
    bench.controller.liveness.peer_broken(1)
    bench.lead(3)
    assert [port for port, _ in bench.knocked] == [9001]
    bench.knocked[0][1]()
    bench.loop.advance(1)
    bench.commit()
    assert (bench.is_fenced(1), bench.is_fenced(2)) == (True, False)


def test_it_is_knocked_where_other_brokers_come_in() -> None:
    """The first listener may be for clients of another network, where its address means something else."""
    bench = Bench(inter_broker_listener="INSIDE").lead().commit()
    visit = bench.controller.open()
    bench.broker(1, visit.handle, more=[pb.Endpoint(name="INSIDE", host="h", port=7001)])
    visit.ended()
    assert [port for port, _ in bench.knocked] == [7001]


def test_a_broker_that_is_still_starting_opens_its_door_last() -> None:
    bench = Bench().lead().commit()
    visit = bench.controller.open()
    epoch = bench.broker(1)
    beat = rpc.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, want_fence=True)
    visit.handle(rpc.ControllerRequest(broker_heartbeat=beat), bench.answers.append)
    assert bench.commit().is_fenced(1)
    visit.ended()
    bench.loop.advance(600)
    assert not bench.knocked


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


def test_a_connection_that_broke_long_before_this_was_the_controller_says_nothing() -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    bench.follow()
    bench.controller.liveness.peer_broken(1)
    bench.loop.advance(3_600_000)
    bench.lead(3)
    bench.loop.advance(1_000)
    assert not bench.commit().is_fenced(1)
