"""Which replicas `ottla reassign plan` and `ottla brokers decommission` move, and what that comes to."""

from random import Random

import pytest

from ottla.cli.placing import Assignment, NotEnoughBrokers, Partition, Place, Target, changed, cost_of, spread

NO_RACKS = {1: "", 2: "", 3: "", 4: ""}


def topic(*replicas: tuple[int, ...]) -> Assignment:
    return {("t", index): each for index, each in enumerate(replicas)}


def test_what_lies_well_stays() -> None:
    before = topic((1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2))
    assert spread(before, Target(NO_RACKS)) == before


def test_a_broker_that_goes_leaves_its_replicas_to_those_with_the_fewest() -> None:
    before = topic((4, 1), (1, 4), (1, 2))
    after = spread(before, Target({1: "", 2: "", 3: ""}), even=False)
    assert after == topic((3, 1), (1, 2), (1, 2))


def test_a_new_broker_gets_its_share() -> None:
    before = topic(*[(1, 2, 3)] * 8)
    after = spread(before, Target(NO_RACKS))
    loads = [sum(broker in each for each in after.values()) for broker in NO_RACKS]
    assert loads == [6, 6, 6, 6]
    assert sum(set(after[place]) != set(before[place]) for place in before) == 6, "no more moves than it takes"


def test_racks_are_kept_apart() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = spread(topic((1, 3), (1, 2), (3, 4)), Target(racks))
    assert after[("t", 0)] == (1, 3)
    evicted = spread(topic((1, 3), (2, 3)), Target({1: "a", 2: "a", 4: "b"}), even=False)
    assert [set(each) for each in evicted.values()] == [{1, 4}, {2, 4}]


def test_a_factor_that_grows_or_shrinks_keeps_the_preferred_leader() -> None:
    assert [len(each) for each in spread(topic((1,), (2,)), Target(NO_RACKS, 3)).values()] == [3, 3]
    assert spread(topic((3, 1, 2), (3, 2, 4)), Target(NO_RACKS, 1), even=False) == topic((3,), (3,))


def test_more_replicas_than_brokers_cannot_be() -> None:
    with pytest.raises(NotEnoughBrokers, match="t-0 has 3 replicas, for 2 brokers"):
        spread(topic((1, 2, 3)), Target({1: "", 2: ""}))


@pytest.mark.parametrize("seed", range(40))
def test_any_plan_is_possible_even_and_the_same_each_time(seed: int) -> None:
    rng = Random(seed)
    brokers = range(1, rng.randint(3, 8))
    racks = {each: rng.choice(["", "a", "b", "c"]) if seed % 2 else "" for each in brokers}
    factor = rng.randint(1, min(3, len(racks)))
    anywhere = range(1, 10)
    before = {(f"t{n % 3}", n): tuple(rng.sample(anywhere, factor)) for n in range(rng.randint(1, 40))}
    after = spread(before, Target(racks))
    assert after == spread(before, Target(racks))
    for place, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == factor, place
        assert set(replicas) <= set(racks)
    if not seed % 2:
        loads = [sum(each in replicas for replicas in after.values()) for each in racks]
        assert max(loads) - min(loads) <= 1


def test_a_broker_that_is_away_keeps_what_it_has_and_takes_nothing() -> None:
    target = Target(NO_RACKS, closed=frozenset({4}))
    assert spread(topic((1, 4), (1, 2), (1, 2), (1, 2), (1, 3)), target)[("t", 0)] == (3, 4)
    assert all(4 not in each for each in spread(topic((1,), (1,), (1,), (1,)), target).values())
    with pytest.raises(NotEnoughBrokers):
        spread(topic((1, 2, 3)), target._replace(replication_factor=4))


def test_what_a_plan_comes_to() -> None:
    now: dict[Place, Partition] = {
        ("t", 0): Partition((1, 2), (1, 2), 1, 1_000, 2),
        ("t", 1): Partition((2, 1), (2,), 2, 500, 1),
        ("t", 2): Partition((1, 2), (1, 2), 1, 70, 1),
    }
    plan = {("t", 0): (3, 4), ("t", 1): (2, 3), ("t", 2): (2, 1)}
    cost = cost_of(plan, now, alive=(1, 2, 3))
    assert (cost.moved, cost.reordered) == (2, 1)
    assert (cost.bytes_in, cost.bytes_out) == ({3: 1_500, 4: 1_000}, {1: 2_000, 2: 500})
    assert cost.bytes_moved == 2_500
    assert cost.seconds_at(100) == 20, "broker 1 has the most to send"
    assert cost.below_min_in_sync == {("t", 0): (1, 2)}, "4 is not in service"
    assert list(changed(plan | {("t", 2): (1, 2)}, now)) == [("t", 0), ("t", 1)]
