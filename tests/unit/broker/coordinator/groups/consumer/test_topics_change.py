"""Topics that grow, go, come again under their name, or are not read any more."""

from ottla.broker.coordinator.decisions.groups.consumer.records import group_tombstones
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    Member,
    T,
    U,
    beat,
    group_of,
    pair,
    settle,
)
from tests.unit.broker.coordinator.groups.group_bench import Bench


def test_partitions_that_a_topic_gets_are_given_away() -> None:
    bench = Bench()
    one, two = pair(bench)
    epoch = group_of(bench).epoch
    bench.partitions[T] = 6
    bench.shard.consumers.refresh({"t"})
    settle([one, two])
    assert (len(one.owned[T]), len(two.owned[T])) == (3, 3)
    assert len(one.revoked + two.revoked) == 2, "as before"
    assert group_of(bench).epoch == epoch + 1


def test_a_topic_that_is_deleted_is_given_up_and_one_of_its_name_is_another() -> None:
    bench = Bench()
    one, two = Member(bench, "one", ("t", "u")), Member(bench, "two", ("t", "u"))
    settle([one, two])
    again = b"t2".ljust(16, b".")
    bench.topic_ids["t"] = again
    bench.partitions = {again: 4, U: 4}
    bench.shard.consumers.refresh({"t"})
    settle([one, two])
    assert one.places | two.places == {(again, each) for each in range(4)} | {(U, each) for each in range(4)}


def test_a_topic_that_does_not_change_bumps_nothing() -> None:
    bench = Bench()
    one, _ = pair(bench)
    epoch, log = group_of(bench).epoch, len(bench.log)
    bench.partitions[U] = 9
    bench.shard.consumers.refresh({"t", "u"})
    one.beat()
    assert (group_of(bench).epoch, len(bench.log)) == (epoch, log)


def test_a_coordinator_that_takes_over_sees_what_has_changed_meanwhile() -> None:
    bench = Bench()
    one, two = pair(bench)
    bench.partitions[T] = 6
    one.bench = two.bench = bench.another()
    settle([one, two])
    assert len(one.places | two.places) == 6


def test_the_hash_is_that_of_the_topics_which_the_group_subscribes_to() -> None:
    bench = Bench()
    one, two = Member(bench, "one", ("t", "u")), Member(bench, "two", ("t", "u"))
    settle([one, two])
    one.hear(beat(bench, "one", one.epoch, subscribed_topic_names=["t"]))
    two.hear(beat(bench, "two", two.epoch, subscribed_topic_names=["t"]))
    for leaves in (False, True):
        if leaves:
            Member(bench, "three", ("u",)).join()
            beat(bench, "three", -1)
        settle([one, two])
        epoch = group_of(bench).epoch
        bench.shard.consumers.refresh({"t"})
        settle([one, two])
        assert group_of(bench).epoch == epoch, "nothing has changed"


def test_topics_that_nobody_reads_any_more_concern_no_group() -> None:
    bench = Bench()
    one, two = Member(bench, "one", ("t", "u")), Member(bench, "two", ("t",))
    settle([one, two])
    one.hear(beat(bench, "one", one.epoch, subscribed_topic_names=["t"]))
    group_of(bench).is_refresh_due = False
    bench.shard.consumers.refresh({"u"})
    assert not group_of(bench).is_refresh_due
    bench.write([*group_tombstones(group_of(bench))], lambda _: None)  # no node writes that while there are members
    bench.shard.consumers.refresh({"t", "u"})
    assert bench.shard.consumers.find("g") is None
