"""One history: some hundred steps, and now and then everybody comes back and all must be well again."""

import hashlib
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ottla.testing.decisions import lives, serving, users
from ottla.testing.decisions.cluster import Cluster
from ottla.testing.decisions.controller import in_pieces_of
from ottla.testing.decisions.hosting import host_all
from ottla.testing.decisions.rules import Violation, check_settled, is_whole
from ottla.testing.decisions.steps import PROFILES, help_up, take_step

STEPS = 600
SETTLES_EVERY = 150
ROUNDS_MIN, ROUNDS_MAX = 4, 400  # until all is whole
PERSON_ROUND = 50  # who still has no leader then has to be given one
LEAVING_ROUNDS = 100  # those who leave may take so many of them
CHORES_MAX = 500  # in one round
ROUND_MS = 100


class Plan(NamedTuple):
    """What a history is about. ``pieces``: of how many partitions one is; ``keeps_eligible``: from the beginning."""

    partitions: int
    pieces: int
    profile: str
    keeps_eligible: bool


class Outcome(NamedTuple):
    """A history that went well. ``digest``: of its records; the same seed has the same."""

    plan: Plan
    records: int
    committed: int
    digest: str


class HistoryFailure(AssertionError):
    """One that did not; says how to see it again."""

    def __init__(self, seed: int, plan: Plan, error: Exception) -> None:
        again = f"python -m ottla.testing.decisions.run --seed {seed} --trace"
        super().__init__(f"history {seed}, {plan}: {type(error).__name__}: {error}\nagain: {again}")
        self.seed = seed


def draw_plan(rng: Random) -> Plan:
    return Plan(
        partitions=rng.choice((2, 4, 9)),
        pieces=rng.choice((1, 1, 2, 250)),
        profile=rng.choice(list(PROFILES)),
        keeps_eligible=rng.random() < 0.67,
    )


def run_history(seed: int, write: Callable[[str], object] | None = None) -> Outcome:
    """``write`` is told what happens. Raises HistoryFailure, be it a Violation or whatever else the controller comes to."""
    rng = Random(seed)
    plan = draw_plan(rng)
    try:
        with in_pieces_of(plan.pieces):
            cluster = _run(rng, plan, write)
    except Exception as error:
        raise HistoryFailure(seed, plan, error) from error
    log, committed = cluster.controller.log, cluster.promises.committed
    digest = hashlib.sha256(b"".join(log)).hexdigest()[:16]
    return Outcome(plan, len(log), sum(len(each) for each in committed.values()), digest)


def _run(rng: Random, plan: Plan, write: Callable[[str], object] | None) -> Cluster:
    cluster = Cluster(rng, write)
    cluster.say(plan)
    if plan.keeps_eligible:
        users.keep_eligible(cluster, 1)
    settle(cluster)
    users.create_topic(cluster, plan.partitions)
    settle(cluster)
    for number in range(1, STEPS + 1):
        take_step(cluster, PROFILES[plan.profile])
        if number % SETTLES_EVERY == 0:
            settle(cluster)
    return cluster


def settle(cluster: Cluster) -> None:
    """All brokers start, with all their disks, and all that is under way ends. Raises Violation for what does not."""
    cluster.say("everybody comes back")
    cluster.are_faults_on = False
    for number in range(ROUNDS_MAX):
        for broker in cluster.brokers.values():
            help_up(cluster, broker, may_wait=number < LEAVING_ROUNDS)
        lives.everybody_beats(cluster)
        _let_controller_end(cluster)
        _serve(cluster)
        if number == PERSON_ROUND:
            users.say_who_leads(cluster)
        if number >= ROUNDS_MIN and is_whole(cluster.controller.state):
            break
    cluster.are_faults_on = True
    check_settled(cluster.controller.state, {k: v for k, v in cluster.asked_for.items() if k not in cluster.stuck})
    cluster.controller.check()


def _let_controller_end(cluster: Cluster) -> None:
    """Raises Violation when it finds always more to do."""
    controller = cluster.controller
    while controller.waiting:
        controller.go_on()
    controller.now_ms += ROUND_MS
    for _ in range(CHORES_MAX):
        if not controller.fence() and not controller.chore():
            return
    raise Violation("the controller finds always more to do")


def _serve(cluster: Cluster) -> None:
    host_all(cluster)
    for key in cluster.partitions():
        serving.follow(cluster, key)
        serving.advance(cluster, key)
        serving.propose(cluster, key)
    while cluster.proposals:
        serving.deliver(cluster)
