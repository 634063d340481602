"""Production cores on a simulated network: crashes that lose unsynced records, cuts in one or both directions, loss, repetition,
delay, slow disks, clocks that drift. The invariants are checked after every event, liveness when the faults end.

``OTTLA_RAFT_SEEDS=10000`` runs more; a failing seed is named by its test.
"""

import os
from collections.abc import Callable
from random import Random

import pytest

from ottla.testing.raft.cluster import FAIR, RaftCluster
from ottla.testing.raft.faults import FaultEvent, FaultKind, draw_changes, draw_faults

SEEDS = int(os.environ.get("OTTLA_RAFT_SEEDS", "100"))
PER_TEST = 20
FAULTY_MS = 8_000


def run_seed(seed: int) -> RaftCluster:
    cluster = RaftCluster(seed, voters=5 if seed % 3 == 0 else 3, observers=seed % 4)
    cluster.plan(draw_faults(Random(seed), list(cluster.nodes), FAULTY_MS, every_ms=300))
    cluster.start_all()
    cluster.keep_appending(15_000, FAULTY_MS)
    cluster.run(FAULTY_MS)
    cluster.heal_everything()
    cluster.check_liveness()
    return cluster


def run_changing_seed(seed: int) -> RaftCluster:
    """Voters come and go and snapshots are taken among the faults."""
    cluster = RaftCluster(seed, voters=seed % 5 or 3, observers=seed % 3, spares=seed % 4)
    faults = draw_faults(Random(seed), list(cluster.nodes), FAULTY_MS, every_ms=400)
    changes = draw_changes(Random(seed + 1), cluster.controllers, FAULTY_MS, every_ms=200)
    cluster.plan(sorted([*faults, *changes], key=lambda fault: fault.at_ms))
    cluster.start_all()
    cluster.keep_appending(20_000, FAULTY_MS)
    cluster.run(FAULTY_MS)
    cluster.heal_everything()
    cluster.check_liveness()
    return cluster


@pytest.mark.parametrize("first", range(1, SEEDS + 1, PER_TEST))
@pytest.mark.parametrize("run", [run_seed, run_changing_seed], ids=["faults", "faults and changes"])
def test_invariants_hold(run: Callable[[int], RaftCluster], first: int) -> None:
    for seed in range(first, first + PER_TEST):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"seed {seed}; replay: {run.__name__}({seed})")
            raise


def test_voters_are_changed_and_snapshots_installed_in_these_runs() -> None:
    clusters = [run_changing_seed(seed) for seed in range(1, 9)]
    states = [node.replica.core.state for cluster in clusters for node in cluster.nodes.values() if node.replica]

    assert sum(state.voters.latest_offset > 0 for state in states) > len(states) / 2
    assert sum(state.log.start > 0 for state in states) > len(states) / 4


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = run_seed(7), run_seed(7)

    assert (first.events, list(first.history)) == (second.events, list(second.history))
    assert first.events > 1000


def led_cluster(seed: int, voters: int = 3) -> RaftCluster:
    cluster = RaftCluster(seed, voters, weather=FAIR)
    cluster.start_all()
    assert cluster.run_until(lambda: cluster.leader() is not None, 1000)
    cluster.run(500)
    cluster.append()
    cluster.run(500)
    return cluster


@pytest.mark.parametrize("seed", range(10))
def test_a_fresh_cluster_elects_within_a_quarter_of_a_second(seed: int) -> None:
    cluster = RaftCluster(seed, weather=FAIR)
    cluster.start_all()

    assert cluster.run_until(lambda: cluster.leader() is not None, 250)


@pytest.mark.parametrize("seed", range(10))
def test_a_cluster_that_was_restarted_elects_within_half_a_second(seed: int) -> None:
    cluster = led_cluster(seed)
    for node in cluster.nodes.values():
        cluster.stop(node, silently=False)
    cluster.run(10)
    cluster.start_all()

    assert cluster.run_until(lambda: cluster.leader() is not None, 500)


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_of_the_leader_costs_a_tenth_of_a_second(seed: int) -> None:
    cluster = led_cluster(seed)
    leader = cluster.leader()
    assert leader is not None
    cluster.stop(leader, silently=False)

    assert cluster.run_until(lambda: cluster.leader() is not None, 150)


@pytest.mark.parametrize("seed", range(10))
def test_a_graceful_hand_over_costs_a_few_round_trips(seed: int) -> None:
    cluster = led_cluster(seed)
    leader = cluster.leader()
    assert leader is not None
    cluster.inflict(FaultEvent(0, FaultKind.SHUTDOWN, leader.id))

    assert cluster.run_until(lambda: cluster.leader() not in (None, leader), 30)


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_that_was_cut_off_does_not_unseat_the_leader(seed: int) -> None:  # KIP-996
    cluster = led_cluster(seed)
    leader = cluster.leader()
    assert leader is not None
    epoch = leader.replica.core.state.epoch if leader.replica else -1
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.inflict(FaultEvent(0, FaultKind.ISOLATE, follower.id))
    cluster.run(8000)
    cluster.inflict(FaultEvent(0, FaultKind.HEAL))
    cluster.run(5000)

    assert cluster.leader() is leader
    assert leader.replica is not None
    assert leader.replica.core.state.epoch == epoch


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_is_cut_off_makes_way_and_loses_only_what_was_never_committed(seed: int) -> None:
    cluster = led_cluster(seed, voters=5)
    old = cluster.leader()
    assert old is not None
    cluster.inflict(FaultEvent(0, FaultKind.ISOLATE, old.id))
    cluster.append()
    cluster.run(6000)

    assert cluster.leader() not in (None, old)
    assert old.replica is not None
    assert type(old.replica.core.state.role).__name__ != "Leader"
    cluster.heal_everything()
    cluster.check_liveness()


def test_observers_fetch_from_followers_too() -> None:
    cluster = RaftCluster(3, voters=3, observers=6, weather=FAIR)
    cluster.start_all()
    cluster.keep_appending(10_000, 3000)
    cluster.run(4000)
    leader = cluster.leader()
    assert leader is not None
    sources = [getattr(node.replica.core.state.role, "source", None) for node in cluster.nodes.values() if node.replica]

    assert any(source is not None for source in sources)
    assert leader.id not in sources
    cluster.check_liveness()
