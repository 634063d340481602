"""A seed is a run: how many nodes, in what weather, with what faults, how busy. Everything follows from the number."""

from random import Random
from typing import NamedTuple

import msgspec

from ottla.quorum.raft.settings import RaftSettings
from ottla.runtime.errors import ErrorCode
from ottla.testing.raft.cluster import CLUSTER_ID, RaftCluster, endpoint_of
from ottla.testing.raft.faults import FaultEvent, draw_changes, draw_faults, draw_wipes
from ottla.testing.raft.liveness import Recovery, check_liveness
from ottla.testing.raft.losing import lose_candidate
from ottla.testing.raft.network import Weather

FAULTY_MS = 7_000


class Severity(NamedTuple):
    """What a seed draws from: how often something happens (ms), and how bad the network is. Snapshots come in several pieces."""

    faults_ms: tuple[int, ...]
    changes_ms: tuple[int, ...]
    wipes_ms: tuple[int, ...]
    straggle: tuple[float, ...]
    loss: tuple[float, ...]
    duplication: tuple[float, ...]
    snapshot_piece_bytes: int
    records_per_fetch: int


USUAL = Severity(
    (150, 300, 600), (100, 200, 500), (1000, 2500), (0.0, 0.02, 0.1), (0.0, 0.01, 0.05), (0.0, 0.02, 0.1), 2048, 64
)
HARSH = Severity((80, 150, 400), (15, 40, 100), (300, 800), (0.02, 0.1), (0.02, 0.05, 0.15), (0.0, 0.3), 256, 8)
"""More crashes, more loss, a change of voters or a snapshot nearly all the time, followers that lag."""


class Plan(msgspec.Struct, frozen=True):
    """What is done to the cluster of a seed; ``faults`` may be cut down to find out which matter."""

    seed: int
    voters: int
    observers: int
    spares: int  # controllers that do not vote at first
    changing: bool  # voters come and go, and the configuration names bootstrap servers
    auto_join: bool
    formatted: bool  # the voters are known by their directories from the beginning, not by the configuration
    append_every_us: int
    weather: Weather
    severity: Severity
    loses_one: bool  # a voter, for good, when the faults end
    faults: tuple[FaultEvent, ...]


class Outcome(NamedTuple):
    """A run that went well."""

    virtual_us: int
    events: int
    appended: int
    committed: int  # appends that were told so
    not_committed: int  # appends whose leader lost the leadership or died first
    changes: int  # of the voters
    refused: int  # changes that were
    snapshots: int  # nodes that hold one at the end
    recovery: Recovery


class RunFailure(AssertionError):
    """A run that did not; says how to see it again."""

    def __init__(self, plan: Plan, error: Exception) -> None:
        harsh = " --harsh" if plan.severity is HARSH else ""
        again = f"python -m ottla.testing.raft.run --seed {plan.seed}{harsh}"
        super().__init__(f"seed {plan.seed}: {type(error).__name__}: {error}\nagain: {again}")
        self.seed = plan.seed
        self.invariant = getattr(error, "invariant", type(error).__name__)


def plan_of(seed: int, severity: Severity = USUAL) -> Plan:
    """Odd seeds have the voters of the configuration; in even ones voters come and go, and snapshots are taken; every other of
    those was formatted with its voters. In one of three, disks are lost; in a third of the others with the voters of the configuration a voter
    is, for good."""
    rng, disks = Random(seed), Random(f"the disks of {seed}")
    changing = seed % 2 == 0
    voters = rng.choice((1, 2, 3, 3, 3, 4, 5)) if changing else rng.choice((3, 3, 3, 5))
    formatted, loses_disks = changing and disks.random() < 0.5, disks.random() < 0.34
    loses_one = not changing and not loses_disks and disks.random() < 0.34
    observers, spares = max(loses_one, rng.choice((0, 0, 1, 3))), rng.choice((0, 1, 2, 3)) if changing else 0
    total = voters + observers + spares
    controllers = [*range(1, voters + 1), *range(voters + observers + 1, total + 1)]
    faults = draw_faults(rng, range(1, total + 1), FAULTY_MS, rng.choice(severity.faults_ms))
    if changing:
        faults += draw_changes(rng, controllers, FAULTY_MS, rng.choice(severity.changes_ms))
    if loses_disks:
        faults += draw_wipes(disks, controllers, FAULTY_MS, disks.choice(severity.wipes_ms))
    return Plan(
        seed,
        voters,
        observers,
        spares,
        changing,
        changing and rng.random() < 0.3,
        formatted,
        rng.choice((10_000, 25_000, 50_000)),
        _draw_weather(rng, severity),
        severity,
        loses_one,
        tuple(sorted(faults, key=lambda fault: fault.at_ms)),
    )


def _draw_weather(rng: Random, severity: Severity) -> Weather:
    return Weather(
        straggle=rng.choice(severity.straggle),
        loss=rng.choice(severity.loss),
        duplication=rng.choice(severity.duplication),
    )


def cluster_of(plan: Plan) -> RaftCluster:
    settings = RaftSettings(
        cluster_id=CLUSTER_ID,
        auto_join=plan.auto_join,
        snapshot_max_bytes=plan.severity.snapshot_piece_bytes,
        bootstrap=tuple(endpoint_of(node) for node in range(1, plan.voters + 1)) if plan.changing else (),
    )
    return RaftCluster(
        plan.seed,
        plan.voters,
        plan.observers,
        plan.spares,
        formatted=plan.formatted,
        records_per_fetch=plan.severity.records_per_fetch,
        weather=plan.weather,
        settings=settings,
    )


def run_plan(plan: Plan, cluster: RaftCluster) -> Outcome:
    """Raises InvariantViolation, or whatever the core raises."""
    cluster.plan(plan.faults)
    cluster.start_all()
    cluster.keep_appending(plan.append_every_us, FAULTY_MS)
    cluster.run(FAULTY_MS)
    if plan.loses_one:
        lose_candidate(cluster)
    cluster.heal_everything()
    recovery = check_liveness(cluster)
    appends, changes = cluster.promises.appends, cluster.promises.changes
    committed, changed = appends["committed"], changes.get(ErrorCode.NONE, 0)
    return Outcome(
        cluster.now_us,
        cluster.events,
        cluster.appended,
        committed,
        sum(appends.values()) - committed,
        changed,
        sum(changes.values()) - changed,
        sum(node.disk.snapshot is not None for node in cluster.nodes.values()),
        recovery,
    )


def run_seed(seed: int, severity: Severity = USUAL) -> Outcome:
    """Raises RunFailure."""
    plan = plan_of(seed, severity)
    try:
        return run_plan(plan, cluster_of(plan))
    except Exception as error:
        raise RunFailure(plan, error) from error
