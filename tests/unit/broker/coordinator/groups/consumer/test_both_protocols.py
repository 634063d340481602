"""A group id is that of a classic group or of a consumer group: one without members makes way for the other kind."""

from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import Member, join, settle
from tests.unit.broker.coordinator.groups.group_bench import DAY_MS, Bench
from tests.unit.broker.coordinator.groups.test_offsets import commit, offset


def test_offsets_committed_without_a_group_are_those_of_the_consumer_group_to_come() -> None:
    bench = Bench()
    commit(bench, 5)
    settle([Member(bench, "one")])
    assert bench.shard.find("g") is None
    assert offset(bench) == (5, 0)
    assert bench.shard.contents() == bench.another().shard.contents()
    assert bench.another().shard.find("g") is None


def test_a_classic_group_that_is_empty_becomes_a_consumer_group_and_back() -> None:
    bench = Bench()
    (member_id,) = bench.stable(1)
    commit(bench, 5, generation=1, member_id=member_id)
    bench.leave(member_id)
    one = Member(bench, "one")
    settle([one])
    assert bench.shard.find("g") is None
    assert one.owned
    assert not bench.another().shard.written
    one.leave()
    assert bench.stable(1)
    assert bench.shard.consumers.find("g") is None
    assert bench.shard.contents() == bench.another().shard.contents()
    assert offset(bench) == (5, 0)


def test_members_that_cannot_be_understood_keep_those_of_the_other_protocol_out() -> None:
    """Others change the group's protocol: `groups/migration`."""
    bench = Bench()
    (member_id,) = bench.stable(1)
    assert join(bench, "one").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.heartbeat(member_id, 1) is ErrorCode.NONE
    other = Bench()
    settle([Member(other, "one")])
    assert other.join(metadata=b"?").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert other.join("m", metadata=b"?").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert other.heartbeat("one", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_could_not_change_its_kind_is_what_it_was() -> None:
    bench = Bench()
    (member_id,) = bench.stable(1)
    bench.leave(member_id)
    commit(bench, 5)
    generation = bench.group.generation
    bench.commits = False
    asked = join(bench, "one")
    bench.fail()
    assert asked.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.group.generation == generation
    assert bench.shard.contents() == bench.another().shard.contents()


def test_a_group_of_offsets_alone_that_could_not_change_its_kind_is_there_still() -> None:
    bench = Bench()
    commit(bench, 5)
    bench.commits = False
    join(bench, "one")
    bench.fail()
    assert bench.group is not None
    assert offset_of_expired(bench) == []


def offset_of_expired(bench: Bench) -> list[object]:
    """Its offsets are looked at when groups expire."""
    bench.commits = True
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    return list(bench.shard.offsets.of_group("g"))


def test_a_consumer_group_that_could_not_make_way_is_there_again() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    one.leave()
    before = bench.shard.contents()
    bench.commits = False
    waits = bench.join(version=3)
    bench.fail()
    assert waits.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.shard.find("g") is None
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.join(version=3).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.shard.contents() == before == bench.another().shard.contents()
