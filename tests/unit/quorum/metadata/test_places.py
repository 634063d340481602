"""Brokers of one host are one place, where no rack says otherwise."""

from random import Random

import pytest

from ottla.quorum.controller.decisions.placement import UsableBroker, place
from ottla.quorum.metadata.places import SOMEWHERE, Standing, places, shared_hosts


def test_brokers_that_share_a_host_share_a_place() -> None:
    told = [Standing(1, None, "a"), Standing(2, None, "A"), Standing(3, None, "b"), Standing(4, None, "b")]
    found = places(told)
    assert found[1] == found[2] != found[3] == found[4]


@pytest.mark.parametrize("hosts", ["aaa", "abc", ""])
def test_all_on_one_host_or_each_on_its_own_are_one_rack(hosts: str) -> None:
    assert set(places(Standing(number, None, host) for number, host in enumerate(hosts)).values()) <= {SOMEWHERE}


def test_a_rack_counts_before_the_host() -> None:
    told = [
        Standing(1, "r1", "a"),
        Standing(2, "r2", "a"),
        Standing(3, None, "b"),
        Standing(4, None, "b"),
        Standing(5, None, "c"),
    ]
    found = places(told)
    assert (found[1], found[2]) == ("r1", "r2")
    assert found[3] == found[4] != found[5]


def test_replicas_share_a_host_only_when_they_must() -> None:
    told = [Standing(number, None, f"host-{number // 2}") for number in range(6)]
    usable = [UsableBroker(each, where, False) for each, where in places(told).items()]
    for seed in range(20):
        assert not any(shared_hosts(told, replicas) for replicas in place(Random(seed), usable, 12, 3))
        assert all(len(shared_hosts(told, replicas)) == 1 for replicas in place(Random(seed), usable, 12, 4))


def test_replicas_in_different_racks_do_not_count_as_together() -> None:
    told = [Standing(1, "r1", "a"), Standing(2, "r2", "a"), Standing(3, None, "b"), Standing(4, None, "b")]
    assert shared_hosts(told, [1, 2, 3]) == []
    assert shared_hosts(told, [1, 3, 4, 9]) == ["b"]
