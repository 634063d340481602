"""ConsumerGroupHeartbeat of who joins: what it is given, what it may ask, how many there may be (KIP-848)."""

from typing import Any

import pytest

from ottla.broker.coordinator.decisions.groups.consumer import steps, subscriptions
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroupState
from ottla.broker.coordinator.decisions.groups.consumer.subscriptions import NAME_BYTES
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    Member,
    T,
    U,
    assigned,
    beat,
    group_of,
    join,
    pair,
    settle,
)
from tests.unit.broker.coordinator.groups.group_bench import Bench


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
    monkeypatch.setattr(subscriptions, "SUBSCRIPTIONS_BYTES_MAX", 12 * NAME_BYTES + 100)
    bench = Bench()
    names = [f"topic-{number}" for number in range(10)]
    for member_id in ("one", "two", "three"):
        assert join(bench, member_id, names).error is ErrorCode.NONE, "together they need no more than one"
    group = group_of(bench)
    assert group.subscriptions.bytes == 10 * NAME_BYTES + 70
    assert len({id(each.topics) for each in group.members.values()}) == 1
    assert join(bench, "four", names[:-1]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    asked = beat(bench, "one", 1, subscribed_topic_names=names[:-1])
    assert asked.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    for member_id in ("one", "two", "three"):
        beat(bench, member_id, 1, subscribed_topic_names=["t"])
    assert group.subscriptions.bytes == NAME_BYTES + 1
    bench.commits = False
    join(bench, "five", names)
    bench.fail()
    assert group.subscriptions.bytes == NAME_BYTES + 1


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
