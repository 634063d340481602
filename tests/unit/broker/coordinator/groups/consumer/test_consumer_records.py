"""The records of consumer groups, byte for byte as Kafka's classes write them, and what is made of them in any order (kraft.md 5.3)."""

import pytest
from msgspec.structs import replace

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from ottla.broker.wire.errors import WireError
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import INTERVAL_MS, Member, T, join, settle
from tests.unit.broker.coordinator.groups.group_bench import Bench

MEMBER = ConsumerMember(
    "m",
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="/h",
    topics=frozenset({"u", "t"}),
    rebalance_timeout_ms=7,
    assignor="range",
    epoch=3,
    previous_epoch=2,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={T: {1: 2, 0: 3}},
    revoking={T: {5: 1}},
)
GROUP_KEY, MEMBER_KEY = b"\0\1g", b"\0\1g\0\1m"


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (epoch_record("g", 4, 0), b"\0\3" + GROUP_KEY, b"\0\0" b"\0\0\0\4" b"\0"),
        (epoch_record("g", 4, 9), b"\0\3" + GROUP_KEY, b"\0\0" b"\0\0\0\4" b"\1\0\x08" + bytes(7) + b"\x09"),
        (
            member_record("g", MEMBER),
            b"\0\5" + MEMBER_KEY,
            b"\0\0" b"\2i" b"\0" b"\2c" b"\3/h" b"\3\2t\2u" b"\1" b"\0\0\0\7" b"\6range" b"\0",
        ),
        (target_epoch_record("g", 4, 0), b"\0\6" + GROUP_KEY, b"\0\0" b"\0\0\0\4" b"\0"),
        (target_epoch_record("g", 4, 5), b"\0\6" + GROUP_KEY, b"\0\0" b"\0\0\0\4" b"\1\0\x08" + bytes(7) + b"\5"),
        (
            target_record("g", "m", {T: frozenset({2, 1})}),
            b"\0\7" + MEMBER_KEY,
            b"\0\0" b"\2" + T + b"\3\0\0\0\1\0\0\0\2" b"\0\0",
        ),
        (
            current_record("g", MEMBER),
            b"\0\x08" + MEMBER_KEY,
            b"\0\0" b"\0\0\0\3" b"\0\0\0\2" b"\1"
            b"\2" + T + b"\3\0\0\0\0\0\0\0\1" b"\1\0\x09\3\0\0\0\3\0\0\0\2"
            b"\2" + T + b"\2\0\0\0\5" b"\1\0\5\2\0\0\0\1"
            b"\0",
        ),
    ],
)  # fmt: skip
def test_a_record_is_written_as_kafka_writes_it(record: Record, key: bytes, value: bytes) -> None:
    assert (record.key, record.value) == (key, value)


def test_what_is_written_is_read() -> None:
    bench = Bench()
    records = [member_record("g", MEMBER), current_record("g", MEMBER)]
    for place, each in enumerate(records):
        bench.shard.replay(Record(each.key, each.value), place)
    assert group_of(bench).members == {"m": MEMBER}


def test_partitions_without_the_epochs_in_which_they_were_given_are_as_old_as_the_member() -> None:
    """Kafka before 4.3 does not write them."""
    bench = Bench()
    value = b"\0\0\0\0\0\3\0\0\0\2\0\2" + T + b"\2\0\0\0\5\0\1\0"
    bench.shard.replay(Record(b"\0\x08" + MEMBER_KEY, value), 0)
    assert group_of(bench).members["m"].assigned == {T: {5: 3}}


def group_of(bench: Bench) -> ConsumerGroup:
    group = bench.shard.consumers.find("g")
    assert group is not None
    return group


# --- in any order -----------------------------------------------------------------------------------------------------


def test_a_compacted_partition_says_the_same() -> None:
    bench = Bench()
    members = [Member(bench, f"m{number}", instance_id=f"i{number}" if number % 2 else None) for number in range(4)]
    settle(members)
    members[1].leave(-2)
    members[2].leave()
    settle(members[3:])
    replaced = Member(bench, "again", instance_id="i1")
    settle([replaced, members[3]])
    kept: dict[bytes, Record] = {}
    for record in bench.log:
        kept.pop(record.key, None)
        kept[record.key] = record
    with_tombstones = list(kept.values())
    without = [each for each in with_tombstones if each.value is not None]
    for log in (with_tombstones, without):
        other = Bench()
        for place, each in enumerate(log):
            other.shard.replay(Record(each.key, each.value), place)
        assert other.shard.contents() == bench.shard.contents()


def read_in_parts(records: list[Record]) -> ConsumerGroup:
    bench = Bench()
    for place, each in enumerate(records):
        bench.shard.replay(Record(each.key, each.value), place)
    group = bench.shard.consumers.find("g")
    assert group is not None
    return group


def test_what_one_gave_up_and_another_holds_is_the_others_whatever_was_superseded() -> None:
    """Of a log that is read in parts (there are transactions in it) only the last record of a key in each part is replayed. Here the one by
    which "one" gave its partition up was superseded in the second: "one" seems to hold it still when its description comes."""
    one, two = ConsumerMember("one", epoch=1, assigned={T: {0: 1}}), ConsumerMember("two", epoch=2)
    group = read_in_parts(
        [
            *(member_record("g", one), member_record("g", two), current_record("g", one)),
            current_record("g", replace(two, assigned={T: {0: 2}})),
            member_record("g", replace(one, client_host="/h")),
            current_record("g", replace(one, epoch=3, assigned={})),
        ]
    )
    assert group.owners == {T: {0: "two"}}


def test_an_instance_is_of_who_has_it_now_whatever_was_superseded() -> None:
    """As above: that "one" had become another instance was superseded."""
    one, two = ConsumerMember("one", instance_id="i", epoch=1), ConsumerMember("two", instance_id="i", epoch=2)
    group = read_in_parts(
        [
            *(member_record("g", one), current_record("g", one)),
            member_record("g", two),
            current_record("g", replace(one, epoch=2)),
            member_record("g", replace(one, instance_id="j", client_host="/h")),
        ]
    )
    assert group.static == {"i": "two", "j": "one"}


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    bench, group = Bench(), ConsumerGroup("g", {})
    group.targets["m"] = {}
    for each in [*member_tombstones("g", "m"), *group_tombstones(group)]:
        bench.shard.replay(Record(each.key, each.value), 0)()
        bench.shard.replay(Record(each.key, each.value), 0)
    assert bench.shard.contents() == Bench().shard.contents()


def test_a_group_that_was_deleted_is_gone_with_all_that_was_said_of_it() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    one.leave()
    told: list[object] = []
    bench.shard.delete(["g"], told.append)
    assert bench.shard.contents() == Bench().shard.contents() == bench.another().shard.contents()
    left = {each.key for each in bench.log} - {each.key for each in bench.log if each.value is None}
    assert not left, "nothing is kept by compaction"


@pytest.mark.parametrize(
    "key", [b"\0\3" + GROUP_KEY, b"\0\5" + MEMBER_KEY, b"\0\7" + MEMBER_KEY, b"\0\x08" + MEMBER_KEY]
)
@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0", b"\0\x63", b"\xff\xff" + bytes(99), b"\0\0" + b"\xff" * 20])
def test_a_record_that_makes_no_sense_is_told_apart(key: bytes, value: bytes) -> None:
    bench = Bench()
    with pytest.raises(WireError):
        bench.shard.replay(Record(key, value), 0)
    assert bench.shard.contents() == Bench().shard.contents()


# --- what cannot be written is undone ---------------------------------------------------------------------------------


def test_all_that_was_decided_upon_what_cannot_be_written_is_undone() -> None:
    bench = Bench()
    members = [Member(bench, "one"), Member(bench, "two", instance_id="i")]
    settle(members)
    before = bench.another().shard.contents()
    bench.commits = False
    asked = [join(bench, "three", ("t", "u")), join(bench, "four", group="h")]
    members[1].bench = Bench()  # its answers come later
    bench.wait(INTERVAL_MS)
    asked.append(join(bench, "five"))
    bench.fail()
    assert all(each.error for each in asked)
    assert bench.shard.contents() == before == bench.another().shard.contents()
    assert not bench.shard.consumers.contents().keys() - {"g"}


def test_topics_that_changed_are_seen_again_when_that_could_not_be_written() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    bench.partitions[T] = 6
    bench.shard.consumers.refresh({"t"})
    bench.commits = False
    one.bench.wait(1)
    asked = join(bench, "one")
    bench.fail()
    bench.commits = True
    assert asked.error
    settle([one])
    assert len(one.owned[T]) == 6
