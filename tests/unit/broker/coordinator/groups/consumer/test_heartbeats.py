"""ConsumerGroupHeartbeat: who joins, what is told, which epoch counts, what is written (KIP-848; kraft.md 5.3)."""

from typing import Any

import pytest

from ottla.broker.coordinator.decisions.groups.consumer import steps, subscriptions, writes
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from ottla.broker.coordinator.decisions.groups.consumer.member import MemberState
from ottla.broker.coordinator.decisions.groups.consumer.records import epoch_record, group_tombstones
from ottla.broker.coordinator.decisions.groups.consumer.targets import preferred_assignor
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    REBALANCE_MS,
    Member,
    T,
    U,
    assigned,
    beat,
    join,
    settle,
)
from tests.unit.broker.coordinator.groups.group_bench import Bench


def group_of(bench: Bench) -> ConsumerGroup:
    group = bench.shard.consumers.find("g")
    assert group is not None
    return group


def pair(bench: Bench) -> tuple[Member, Member]:
    """Two members that have come to their target."""
    one, two = Member(bench, "one"), Member(bench, "two")
    settle([one, two])
    assert (len(one.owned[T]), len(two.owned[T])) == (2, 2)
    return one, two


# --- joining ----------------------------------------------------------------------------------------------------------


def test_the_first_member_is_given_everything_at_once() -> None:
    bench = Bench()
    asked = join(bench, "one")
    assert (asked.said.member_id, asked.said.member_epoch, asked.said.heartbeat_interval_ms) == ("one", 1, 5_000)
    assert assigned(asked) == {T: [0, 1, 2, 3]}
    assert group_of(bench).state is ConsumerGroupState.STABLE


def test_an_older_client_is_given_its_id() -> None:
    bench = Bench()
    asked = join(bench, "", version=0)
    assert asked.said.member_id == "id1"
    assert beat(bench, "id1", 1, version=0).error is ErrorCode.NONE


def test_a_partition_is_given_when_its_owner_has_given_it_up_and_the_rest_does_not_stop() -> None:
    bench = Bench()
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    two.join()
    assert not two.owned, "all of it is read by another"
    assert group_of(bench).state is ConsumerGroupState.RECONCILING
    one.beat()
    kept = one.owned[T]
    assert len(kept) == 2
    two.beat()
    assert not two.owned, "it has been told, and has not said that it gave up"
    one.beat()
    two.beat()
    assert two.owned[T] == frozenset(range(4)) - kept
    assert (one.epoch, two.epoch) == (2, 2)
    settle([one, two])
    assert len(one.revoked) == 2
    assert group_of(bench).state is ConsumerGroupState.STABLE


def test_a_member_of_other_topics_is_given_those() -> None:
    bench = Bench()
    one, two = Member(bench, "one", ("t",)), Member(bench, "two", ("u", "nix"))
    settle([one, two])
    assert (set(one.owned), set(two.owned)) == ({T}, {U})


def test_a_member_that_subscribes_to_nothing_yet_is_a_member() -> None:
    bench = Bench()
    asked = join(bench, "one", [])
    assert asked.said.member_epoch == 1
    asked = beat(bench, "one", 1, subscribed_topic_names=["t"])
    bench.wait(INTERVAL_MS)
    assert assigned(beat(bench, "one", asked.said.member_epoch)) == {T: [0, 1, 2, 3]}


def test_a_storm_of_joins_costs_one_target_an_interval() -> None:
    bench = Bench()
    for number in range(20):
        join(bench, f"m{number}")
    group = group_of(bench)
    assert (group.epoch, group.assignment_epoch) == (20, 1)
    assert group.state is ConsumerGroupState.ASSIGNING
    bench.wait(INTERVAL_MS)
    beat(bench, "m3", 1)
    assert (group.epoch, group.assignment_epoch) == (20, 20)


def test_a_clock_that_went_back_does_not_hold_the_target_up() -> None:
    bench = Bench()
    join(bench, "one")
    bench.time_ms -= 3_600_000
    join(bench, "two")
    assert group_of(bench).assignment_epoch == 2


def test_a_full_group_takes_nobody_but_who_is_in_it() -> None:
    bench = Bench(consumer_max_size=2)
    pair(bench)
    assert join(bench, "three").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(bench, "two").error is ErrorCode.NONE
    assert bench.shard.contents() == bench.another().shard.contents()


def test_no_group_has_more_members_than_a_target_is_computed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MEMBERS_MAX", 2)
    bench = Bench()
    pair(bench)
    assert join(bench, "three").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_what_members_subscribe_to_is_kept_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SUBSCRIPTIONS_BYTES_MAX", 100)
    bench = Bench()
    names = [f"topic-{number}" for number in range(10)]
    for member_id in ("one", "two", "three"):
        assert join(bench, member_id, names).error is ErrorCode.NONE, "together they need no more than one"
    group = group_of(bench)
    assert group.subscriptions.bytes == 70
    assert len({id(each.topics) for each in group.members.values()}) == 1
    assert join(bench, "four", names[:-1]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    asked = beat(bench, "one", 1, subscribed_topic_names=names[:-1])
    assert asked.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    for member_id in ("one", "two", "three"):
        beat(bench, member_id, 1, subscribed_topic_names=["t"])
    assert group.subscriptions.bytes == 1
    bench.commits = False
    join(bench, "five", names)
    bench.fail()
    assert group.subscriptions.bytes == 1


# --- what is asked ----------------------------------------------------------------------------------------------------

FIRST: dict[str, Any] = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "owned": {}}


@pytest.mark.parametrize(
    ("member_id", "epoch", "said"),
    [
        ("m", 0, {**FIRST, "rebalance_timeout_ms": -1}),
        ("m", 0, {**FIRST, "subscribed_topic_names": None}),
        ("m", 0, {**FIRST, "owned": None}),
        ("m", 0, {**FIRST, "owned": {T: [0]}}),
        ("m", 0, {**FIRST, "instance_id": ""}),
        ("m", 0, {**FIRST, "rack_id": " "}),
        ("m", 0, {**FIRST, "group": ""}),
        ("", 0, FIRST),
        ("", 0, {**FIRST, "version": 1}),
        ("", 5, {"version": 0}),
        ("", -1, {"version": 0}),
        ("m", -2, {}),
        ("m", -3, {}),
    ],
)
def test_a_request_that_makes_no_sense_is_invalid(member_id: str, epoch: int, said: dict[str, Any]) -> None:
    bench = Bench()
    asked = beat(bench, member_id, epoch, **said)
    assert asked.error is ErrorCode.INVALID_REQUEST
    assert asked.said.error_message
    assert not bench.log


def test_names_that_no_record_can_hold_are_refused() -> None:
    bench = Bench()
    assert join(bench, "m" * 40_000).error is ErrorCode.INVALID_GROUP_ID
    assert join(bench, "m", group="g" * 40_000).error is ErrorCode.INVALID_GROUP_ID
    assert not bench.log


def test_an_assignor_that_nobody_knows_is_refused_and_says_which_there_are() -> None:
    asked = join(Bench(), "m", server_assignor="mine")
    assert asked.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in asked.said.error_message


def test_the_assignor_that_most_ask_for_assigns() -> None:
    bench = Bench()
    for number in range(3):
        join(bench, f"m{number}", ("t", "u"), server_assignor="range")
    bench.wait(INTERVAL_MS)
    group = group_of(bench)
    beat(bench, "m0", 1)
    assert [group.targets["m0"][each] for each in (T, U)] == [{0, 1}, {0, 1}], "range gives the first one more of each"
    before = group.epoch
    beat(bench, "m1", 1, server_assignor="uniform")
    assert group.epoch == before, "most ask for range still"
    beat(bench, "m2", 1, server_assignor="uniform")
    assert group.epoch == before + 1
    bench.wait(INTERVAL_MS)
    beat(bench, "m0", 1)
    assert sorted(sum(map(len, each.values())) for each in group.targets.values()) == [2, 3, 3]


# --- epochs -----------------------------------------------------------------------------------------------------------


def test_who_is_not_a_member_is_told_so() -> None:
    bench = Bench()
    assert beat(bench, "m", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    pair(bench)
    assert beat(bench, "m", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(bench, "m", -1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(bench, "m", -1, group="nix").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_epoch_that_was_not_given_is_fenced() -> None:
    bench = Bench()
    one, two = pair(bench)
    settle([one, two, Member(bench, "three")])
    assert beat(bench, "one", one.epoch + 1, owned=one.owned).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(bench, "one", one.epoch - 2, owned={}).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(bench, "one", one.epoch, owned=one.owned).error is ErrorCode.NONE


def test_an_answer_that_was_lost_is_given_again_to_who_has_nothing_but_what_it_was_given() -> None:
    bench = Bench()
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    two.join()
    one.beat()
    before = one.epoch
    beat(bench, "one", before, owned=one.owned)  # its answer, with the next epoch, is lost
    full: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["t"]}
    unsure: tuple[dict[str, Any], ...] = ({}, {"owned": {T: range(4)}})
    for said in unsure:
        assert beat(bench, "one", before, **said).error is ErrorCode.FENCED_MEMBER_EPOCH
    asked = beat(bench, "one", before, owned=one.owned, **full)
    assert (asked.said.member_epoch, assigned(asked)) == (before + 1, {T: sorted(one.owned[T])})


def test_a_member_that_was_fenced_joins_again_under_its_id() -> None:
    bench = Bench()
    one, two = pair(bench)
    epoch = group_of(bench).epoch
    asked = join(bench, "one")
    assert assigned(asked) == {T: sorted(one.owned[T])}
    assert group_of(bench).epoch == epoch, "nobody else hears of it"
    assert two.beat() is ErrorCode.NONE


def test_a_member_that_joins_again_while_it_gives_up_has_given_up() -> None:
    bench = Bench()
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    two.join()
    beat(bench, "one", 1, owned=one.owned)
    assert group_of(bench).members["one"].state is MemberState.UNREVOKED_PARTITIONS
    one.join()
    two.beat()
    assert len(two.owned[T]) == 2


# --- what is said ------------------------------------------------------------------------------------------------------


def test_the_assignment_is_told_when_it_has_changed_or_everything_was_said() -> None:
    bench = Bench()
    one, _ = pair(bench)
    assert beat(bench, "one", one.epoch, owned=one.owned).said.assignment is None
    full = beat(
        bench, "one", one.epoch, owned=one.owned, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["t"]
    )
    assert assigned(full) == {T: sorted(one.owned[T])}


def test_what_is_left_out_has_not_changed() -> None:
    bench = Bench()
    join(bench, "one", rack_id="r", server_assignor="range")
    before = group_of(bench).members["one"]
    beat(bench, "one", 1)
    assert group_of(bench).members["one"] == before
    assert (before.rack_id, before.assignor, before.rebalance_timeout_ms) == ("r", "range", REBALANCE_MS)
    assert before.topics == {"t"}


def test_a_topic_that_a_member_does_not_read_any_more_goes_to_another() -> None:
    bench = Bench()
    one, two = Member(bench, "one", ("t", "u")), Member(bench, "two", ("t", "u"))
    settle([one, two])
    one.hear(beat(bench, "one", one.epoch, owned=one.owned, subscribed_topic_names=["t"]))
    assert U not in one.owned, "it does not wait for the target"
    settle([one, two])
    assert two.owned[U] == frozenset(range(4))


# --- topics change ----------------------------------------------------------------------------------------------------


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


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_moves_no_timer() -> None:
    bench = Bench()
    one, _ = pair(bench)
    one.beat()
    log, reminded, written = len(bench.log), bench.reminded, len(bench.written)
    bench.topic_ids = {}  # it looks at no topic
    for _ in range(100):
        assert one.beat() is ErrorCode.NONE
    assert (len(bench.log), bench.reminded, len(bench.written)) == (log, reminded, written)


def test_who_is_told_something_new_is_told_when_it_is_committed_and_the_others_at_once() -> None:
    bench = Bench()
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    bench.commits = False
    joins = join(bench, "two")
    revokes = beat(bench, "one", 1, owned=one.owned)
    assert joins.waits
    assert revokes.waits
    bench.commit()
    two.hear(joins)
    one.hear(revokes)
    assert not beat(bench, "one", 1).waits, "it is to give up what it was told to"
    assert not beat(bench, "two", 2).waits, "it goes on waiting for the others"
    released = beat(bench, "one", 1, owned=one.owned)
    assert released.waits
    again = beat(bench, "two", 2, owned={})
    assert again.waits, "it is given what is not committed to be free"


def test_a_coordinator_that_took_over_tells_what_it_has_read_when_that_is_committed() -> None:
    bench = Bench()
    one, _ = pair(bench)
    other = bench.another()
    other.commits = False
    assert not beat(other, "one", one.epoch, owned=one.owned).waits, "it is told what it said"
    asked = join(other, "one")
    assert asked.waits
    other.commit()
    assert assigned(asked) == {T: sorted(one.owned[T])}


def test_only_those_whose_target_changes_are_written() -> None:
    bench = Bench()
    members = [Member(bench, f"m{number}") for number in range(4)]
    settle(members)
    before = len(bench.log)
    Member(bench, "m4").join()
    kinds = sorted(each.key[1] for each in bench.log[before:])
    assert kinds == [3, 5, 6, 7, 8]


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


def test_an_assignor_that_only_another_node_knows_has_no_vote() -> None:
    assert preferred_assignor({"theirs": 5, "range": 1}, ("uniform", "range")) == "range"
    assert preferred_assignor({"theirs": 5}, ("uniform", "range")) == "uniform"
    assert preferred_assignor({"range": 2, "uniform": 2}, ("uniform", "range")) == "range"


def test_after_a_step_that_is_refused_nothing_more_is_written() -> None:
    bench = Bench()
    told: list[ErrorCode] = []
    chain = writes.Writes(bench, told.append)
    chain.write([epoch_record("g", 1, 0)])
    bench.refuses = ErrorCode.UNKNOWN_SERVER_ERROR
    chain.write([epoch_record("g", 2, 0)])
    bench.refuses = ErrorCode.NONE
    chain.write([epoch_record("g", 3, 0)])
    assert not told
    chain.close()
    assert told == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert group_of(bench).epoch == 1


def test_who_holds_a_partition_may_be_given_it() -> None:
    bench = Bench()
    one, two = pair(bench)
    group = group_of(bench)
    for member, other in ((one, two), (two, one)):
        for topic, partition in member.places:
            assert group.is_free_for(member.id, topic, partition)
            assert not group.is_free_for(other.id, topic, partition)


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


def test_a_target_of_many_members_is_written_in_pieces_with_its_epoch_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "PIECE_BYTES_MAX", 200)
    bench = Bench()
    for number in range(10):
        join(bench, f"m{number}")
    bench.wait(INTERVAL_MS)
    bench.sizes.clear()
    beat(bench, "m0", 1)
    assert len(bench.sizes) == 3, "two pieces of the target, and what the member holds"
    assert max(bench.sizes) <= 200
    assert group_of(bench).assignment_epoch == 10
    assert bench.shard.contents() == bench.another().shard.contents()
