"""Production cores on a simulated network, disk and clock. The invariants are checked after every event, liveness when the
faults end. ``make test-deep`` runs ten thousand seeds; a failing one is named with the command that shows it again.
"""

import os
import subprocess
import sys

import pytest

from ottla.quorum.raft import serving
from ottla.testing.raft.cluster import RaftCluster
from ottla.testing.raft.faults import FaultEvent, FaultKind
from ottla.testing.raft.liveness import check_liveness
from ottla.testing.raft.network import FAIR
from ottla.testing.raft.seeds import RunFailure, cluster_of, plan_of, run_plan, run_seed

# About 12 s of CPU.
SEEDS = int(os.environ.get("OTTLA_RAFT_SEEDS", "250"))

LOST_CANDIDATE = 79  # others are found by a look at what fails in a thousand odd seeds


def test_hundreds_of_seeds_keep_the_invariants_and_heal() -> None:
    command = [sys.executable, "-m", "ottla.testing.raft.run", "--seeds", str(SEEDS)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # processes of its own, for every CPU

    sys.stdout.write(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_the_seeds_are_meant_to_do_happens_in_them() -> None:
    plans = [plan_of(seed) for seed in range(1, 40)]
    clusters = [cluster_of(plan) for plan in plans]
    outcomes = [run_plan(plan, cluster) for plan, cluster in zip(plans, clusters, strict=True)]
    kinds = {fault.kind for plan in plans for fault in plan.faults}
    states = [node.replica.core.state for cluster in clusters for node in cluster.nodes.values() if node.replica]

    assert kinds == set(FaultKind)
    assert sum(outcome.changes for outcome in outcomes) > 20
    assert sum(outcome.refused for outcome in outcomes) > 20
    assert sum(outcome.not_committed for outcome in outcomes) > 100
    assert sum(state.log.start > 0 for state in states) > 10


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = cluster_of(plan_of(7)), cluster_of(plan_of(7))

    assert run_plan(plan_of(7), first) == run_plan(plan_of(7), second)
    assert first.history.lines() == second.history.lines()
    assert first.events > 1000


def test_an_observer_that_nobody_serves_any_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a leader that is asked in a higher epoch goes on in its own."""
    monkeypatch.setattr(serving, "give_way", lambda *_: None)
    assert plan_of(LOST_CANDIDATE).loses_one
    with pytest.raises(RunFailure, match="everyone up to date"):
        run_seed(LOST_CANDIDATE)


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
    check_liveness(cluster)


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
    check_liveness(cluster)
