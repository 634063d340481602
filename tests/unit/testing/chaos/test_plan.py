"""What a seed means, and that the table has what it promises."""

from collections import Counter

from ottla.testing.chaos.cluster import COMBINED, SEPARATE
from ottla.testing.chaos.links import CLIENTS, QUORUM, REPLICATION, Link, between, links_of
from ottla.testing.chaos.plan import Plan, rotating, whole
from ottla.testing.chaos.table import FAULTS

WORKLOADS = ["a", "b", "c", "d"]


def test_a_seed_means_the_same_run_every_time() -> None:
    one, again = (Plan("kill-leader", ("a",), 7) for _ in range(2))
    assert (one.shape, one.seconds, one.rng("fault").random()) == (
        again.shape,
        again.seconds,
        again.rng("fault").random(),
    )
    assert len({Plan("kill-leader", ("a",), seed).seconds for seed in range(20)}) > 10


def test_every_fault_meets_every_workload_it_suits() -> None:
    plans = whole(WORKLOADS, 1)
    assert [plan.fault for plan in plans] == [fault.name for fault in FAULTS]
    assert all(list(plan.workloads) == WORKLOADS for plan in plans if not plan.what.workloads)


def test_a_replay_names_fault_workloads_and_seed() -> None:
    command = Plan("bridge", ("groups", "admin"), 5).command
    assert command == "python -m ottla.testing.chaos.run --fault bridge --workloads groups,admin --seed 5"


def test_some_runs_are_of_different_families_and_others_with_another_seed() -> None:
    plans = rotating(WORKLOADS, 20261123, 4)
    assert plans == rotating(WORKLOADS, 20261123, 4)
    assert len({plan.what.family for plan in plans}) == 4
    met = Counter(plan.fault for seed in range(400) for plan in rotating(WORKLOADS, seed, 4))
    assert set(met) == {fault.name for fault in FAULTS}


def test_the_table_has_a_line_for_each_fault_and_thirty_of_them_at_least() -> None:
    assert len(FAULTS) >= 30
    assert all(fault.about and fault.shapes for fault in FAULTS)
    ways = {fault.name for fault in FAULTS if fault.name.startswith("one-way-") and fault.name[8].isdigit()}
    assert ways == {f"one-way-{one}-{other}" for one in (1, 2, 3) for other in (1, 2, 3) if one != other}


def test_every_ordered_pair_of_nodes_has_links_of_its_own() -> None:
    combined = links_of([1, 2, 3], [1, 2, 3])
    assert len(combined) == len(set(combined)) == 6 + 6 + 3
    apart = links_of([1, 2, 3], [4, 5, 6])
    assert Counter(link.kind for link in apart) == {CLIENTS: 3, QUORUM: 9 + 6, REPLICATION: 9 + 6}
    assert all(link.source != link.target for link in apart)
    assert sum(COMBINED) == 3
    assert sum(SEPARATE) == 6


def test_links_between_two_sides_are_those_of_either_direction() -> None:
    found = between(links_of([1, 2, 3], [1, 2, 3]), [1], [2, 3])
    assert Link(QUORUM, 1, 2) in found
    assert Link(REPLICATION, 3, 1) in found
    assert len(found) == 8
    assert not any(link.kind == CLIENTS for link in found)
