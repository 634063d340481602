"""What is set for one consumer group alone (kafka-configs --entity-type groups)."""

from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import Member, beat, join
from tests.unit.broker.coordinator.groups.group_bench import Bench


def test_a_group_may_have_a_session_of_its_own_from_its_next_heartbeat_on() -> None:
    bench = Bench()
    one, other = Member(bench, "one"), join(bench, "other", group="h")
    one.join()
    bench.own_settings["g"] = {"consumer.session.timeout.ms": "60000"}
    one.beat()
    bench.wait(50_000)
    assert one.beat() is ErrorCode.NONE
    assert beat(bench, "other", other.said.member_epoch, group="h").error is ErrorCode.UNKNOWN_MEMBER_ID
    del bench.own_settings["g"]
    one.beat()
    bench.wait(46_000)
    assert one.beat(), "it was taken out"


def test_a_group_may_have_intervals_of_its_own() -> None:
    bench = Bench()
    bench.own_settings["g"] = {"consumer.heartbeat.interval.ms": "7000", "consumer.assignment.interval.ms": "15000"}
    assert join(bench, "one").said.heartbeat_interval_ms == 7_000
    join(bench, "two")
    group = bench.shard.consumers.find("g")
    assert group is not None
    bench.wait(14_000)
    beat(bench, "one", 1)
    assert group.assignment_epoch < group.epoch
    bench.wait(2_000)
    beat(bench, "one", 1)
    assert group.assignment_epoch == group.epoch


def test_its_own_settings_stay_within_the_bounds_of_the_node() -> None:
    bench = Bench(consumer_heartbeat_bounds=(5_000, 6_000))
    for text, told in (("99000", 6_000), ("1", 5_000), ("soon", 5_000)):
        bench.own_settings["g"] = {"consumer.heartbeat.interval.ms": text}
        assert join(bench, text).said.heartbeat_interval_ms == told


def is_member(bench: Bench) -> bool:
    group = bench.shard.consumers.find("g")
    return group is not None and bool(group.members)


def test_a_shorter_session_counts_from_the_next_heartbeat_on() -> None:
    bench = Bench(consumer_session_bounds=(1_000, 60_000))
    join(bench, "one")
    bench.own_settings["g"] = {"consumer.session.timeout.ms": "10000"}
    bench.wait(30_000)
    assert is_member(bench), "it has not been told of it"
    beat(bench, "one", 1)
    bench.wait(9_999)
    assert is_member(bench)
    bench.wait(1)
    assert not is_member(bench)


def test_a_static_member_that_is_away_has_its_groups_session() -> None:
    bench = Bench(consumer_session_bounds=(1_000, 60_000))
    bench.own_settings["g"] = {"consumer.session.timeout.ms": "10000"}
    member = Member(bench, "one", instance_id="i")
    member.join()
    assert member.leave(-2) == ErrorCode.NONE
    bench.wait(9_999)
    assert is_member(bench)
    bench.wait(1)
    assert not is_member(bench)


def test_another_coordinator_gives_members_their_groups_session() -> None:
    bench = Bench(consumer_session_bounds=(1_000, 60_000))
    bench.own_settings["g"] = {"consumer.session.timeout.ms": "10000"}
    join(bench, "one")
    other = bench.another()
    other.wait(9_999)
    assert is_member(other)
    other.wait(1)
    assert not is_member(other)
