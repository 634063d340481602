"""Runs seeds of the quorum's core: production cores on a simulated network, clock and disk.

python -m ottla.testing.raft.run --seeds 10000         # many, on two processes
python -m ottla.testing.raft.run --harsh --seeds 1000  # with more of everything that goes wrong
python -m ottla.testing.raft.run --seed 17             # one again: its plan, the last events, and what went wrong
python -m ottla.testing.raft.run --seed 17 --shrink    # with as few faults as still break it
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from rich.console import Console

from ottla.runtime.simulation.faults import shrink
from ottla.testing.raft.faults import FaultEvent
from ottla.testing.raft.invariants import InvariantViolation
from ottla.testing.raft.seeds import (
    HARSH,
    USUAL,
    Outcome,
    Plan,
    RunFailure,
    Severity,
    cluster_of,
    plan_of,
    run_plan,
    run_seed,
)
from ottla.testing.seed_search import Failed, chunks_of, search

SHRINK_RUNS_MAX = 400


class Totals(NamedTuple):
    """What a number of seeds came to. Seconds of virtual time and of CPU; milliseconds until a leader, at worst."""

    seeds: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0
    appended: int = 0
    committed: int = 0
    not_committed: int = 0
    changes: int = 0
    refused: int = 0
    leader_ms: float = 0.0

    def plus(self, other: "Totals") -> "Totals":
        """Both together."""
        return Totals(
            self.seeds + other.seeds,
            self.virtual_s + other.virtual_s,
            self.cpu_s + other.cpu_s,
            self.events + other.events,
            self.appended + other.appended,
            self.committed + other.committed,
            self.not_committed + other.not_committed,
            self.changes + other.changes,
            self.refused + other.refused,
            max(self.leader_ms, other.leader_ms),
        )

    def __str__(self) -> str:
        virtual_s, cpu_s = max(self.virtual_s, 1e-9), max(self.cpu_s, 1e-9)
        return (
            f"{self.seeds} seeds: {self.virtual_s / 3600:.2f} simulated hours in {self.cpu_s:.0f} s of CPU, "
            f"{virtual_s / cpu_s:.0f} simulated hours an hour of CPU "
            f"({self.appended / virtual_s:.0f} records and {self.events / virtual_s:.0f} events a simulated second)\n"
            f"appends: {self.committed} committed, {self.not_committed} ended with their leader; voter changes: "
            f"{self.changes} made, {self.refused} refused; after the faults a leader within {self.leader_ms:.0f} ms"
        )


def run_chunk(seeds: Sequence[int], severity: Severity = USUAL) -> tuple[Totals, list[Failed]]:
    """Runs seeds in this process."""
    totals, failures = Totals(), list[Failed]()
    for seed in seeds:
        began_s, outcome = time.process_time(), None
        try:
            outcome = run_seed(seed, severity)
        except RunFailure as failure:
            failures.append(Failed(seed, failure.invariant, str(failure)))
        totals = totals.plus(_counted(outcome, time.process_time() - began_s))
    return totals, failures


def _counted(outcome: Outcome | None, cpu_s: float) -> Totals:
    if outcome is None:
        return Totals(1, cpu_s=cpu_s)
    return Totals(
        1,
        outcome.virtual_us / 1e6,
        cpu_s,
        outcome.events,
        outcome.appended,
        outcome.committed,
        outcome.not_committed,
        outcome.changes,
        outcome.refused,
        outcome.recovery.leader_ms,
    )


def breaks(plan: Plan) -> str | None:
    """Which invariant; None when the run goes well. What is raised without a name is called by its type."""
    try:
        run_plan(plan, cluster_of(plan))
    except InvariantViolation as violation:
        return violation.invariant
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return type(error).__name__
    return None


def shrunk(plan: Plan) -> Plan:
    """The fewest faults that still break the same invariant."""
    broken, runs = breaks(plan), itertools.count(1)

    def fails(faults: list[FaultEvent]) -> bool:
        return next(runs) <= SHRINK_RUNS_MAX and breaks(msgspec.structs.replace(plan, faults=tuple(faults))) == broken

    return plan if broken is None else msgspec.structs.replace(plan, faults=tuple(shrink(plan.faults, fails)))


def tell(plan: Plan, write: Callable[[str], object]) -> bool:
    """One run in detail. True when nothing was wrong."""
    cluster = cluster_of(plan)
    kind = "formatted" if plan.formatted else "static"
    write(f"{plan.voters} {kind} voters, {plan.observers} observers, {plan.spares} spares, {plan.weather}")
    try:
        outcome = run_plan(plan, cluster)
    except Exception as error:  # noqa: BLE001 - as above
        for line in (*cluster.history.lines(), f"{type(error).__name__}: {error}"):
            write(line)
        return False
    write(str(outcome))
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m ottla.testing.raft.run", description="The simulated quorum core")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many seeds (default 1000)")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first of them (default 1)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--seed", type=int, metavar="S", help="this seed alone")
    parser.add_argument("--harsh", action="store_true", help="more of every fault than usual")
    parser.add_argument("--shrink", action="store_true", help="with --seed: drop the faults that do not matter")
    options = parser.parse_args(arguments)
    severity = HARSH if options.harsh else USUAL
    console = Console(soft_wrap=True)
    if options.seed is not None:
        plan = plan_of(options.seed, severity)
        plan = shrunk(plan) if options.shrink else plan
        return 0 if tell(plan, lambda line: console.print(line, markup=False, highlight=False)) else 1
    runs, chunks = partial(run_chunk, severity=severity), chunks_of(options.first, options.seeds)
    totals, failures = search(runs, chunks, Totals(), options.jobs, console, options.seeds)
    console.print(str(totals), markup=False, highlight=False)
    if failures:
        names = ", ".join(str(failure.seed) for failure in failures)
        console.print(f"{len(failures)} failed: {names}", markup=False, highlight=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
