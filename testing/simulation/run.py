"""Runs seeds of the whole cluster.

python -m ottla.testing.simulation.run --seeds 1000           # many, on two processes
python -m ottla.testing.simulation.run --minutes 30           # as many as fit
python -m ottla.testing.simulation.run --brief --seeds 1000   # of groups and transactions, each a fifth as long
python -m ottla.testing.simulation.run --seed 17 --trace      # one, and what every node did
python -m ottla.testing.simulation.run --replay bundle.json   # a failure that was written down
"""

import argparse
import itertools
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import add
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ottla.runtime.simulation.faults import Bundle, Fault, shrink
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.seed_search import Failed, chunks_of, search
from ottla.testing.simulation.length import BRIEF, LENGTHS, USUAL, Length
from ottla.testing.simulation.scenario import NONE, RunResult, SimulationFailure, faults_of, run_seed

SHRINK_RUNS_MAX = 60


class Totals(NamedTuple):
    """What a number of seeds came to. Seconds of virtual time and of CPU."""

    seeds: int
    virtual_s: float
    cpu_s: float
    counts: Counter[str]
    dimensions: Counter[str]

    def plus(self, other: "Totals") -> "Totals":
        """Both together."""
        return Totals(*map(add, self, other))

    def __str__(self) -> str:
        a_second = self.virtual_s / self.cpu_s if self.cpu_s else 0.0
        return (
            f"{self.seeds} seeds, {self.virtual_s / 3600:.2f} virtual hours in {self.cpu_s:.0f} s of CPU: "
            f"{a_second:.0f} virtual hours an hour, {self.cpu_s / max(1, self.seeds):.2f} s a seed\n"
            f"{_told(self.counts)}\nwith {_told(self.dimensions)}"
        )


NOTHING = Totals(0, 0.0, 0.0, Counter(), Counter())


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def run_chunk(dimensions: Sequence[str] | None, length: Length, seeds: Sequence[int]) -> tuple[Totals, list[Failed]]:
    """Runs seeds in this process, without their traces: `explain` runs one that failed again."""
    totals, failures = NOTHING, list[Failed]()
    for seed in seeds:
        began_s = time.process_time()
        run = NOTHING
        try:
            result = run_seed(seed, None, dimensions, SimulationLoop.leave_untraced, length)
            run = Totals(0, result.virtual_s, 0.0, Counter(result.counts), Counter(result.dimensions))
        except SimulationFailure as failure:
            failures.append(Failed(seed, failure.invariant, str(failure)))
        totals = totals.plus(run._replace(seeds=1, cpu_s=time.process_time() - began_s))
    return totals, failures


def search_all(
    first: int,
    count: int | None,
    minutes: float | None,
    jobs: int,
    console: Console,
    dimensions: Sequence[str] | None = None,
    length: Length = USUAL,
) -> list[Failed]:
    """Runs them all and says what they came to."""
    wanted, runs = count if minutes is None else None, partial(run_chunk, dimensions, length)
    totals, failures = search(runs, chunks_of(first, wanted, minutes), NOTHING, jobs, console, wanted)
    console.print(str(totals), markup=False, highlight=False)
    return failures


def shrunk(failure: SimulationFailure, console: Console) -> Bundle:
    """The fewest faults that still break the same invariant."""
    runs = itertools.count(1)

    def fails(faults: list[Fault]) -> bool:
        if next(runs) > SHRINK_RUNS_MAX:
            return False
        try:
            run_seed(failure.seed, faults, failure.dimensions, length=failure.length)
        except SimulationFailure as other:
            return other.invariant == failure.invariant
        return False

    faults = shrink(failure.faults, fails)
    console.print(f"{len(failure.faults)} faults shrunk to {len(faults)}", highlight=False)
    return Bundle(failure.length.name, failure.seed, tuple(faults), str(failure.error), failure.dimensions)


def explain(
    seed: int, dimensions: Sequence[str] | None, console: Console, directory: Path, length: Length = USUAL
) -> None:
    """Runs a failing seed again here: shrinks its faults, writes the bundle, shows the last events."""
    try:
        run_seed(seed, dimensions=dimensions, length=length)
    except SimulationFailure as failure:
        bundle = shrunk(failure, console)
        path = directory / f"simulation-{seed}.json"
        path.write_text(bundle.to_json(), encoding="utf-8")
        story = failure
        try:
            run_seed(seed, bundle.faults, bundle.dimensions, length=length)
        except SimulationFailure as shorter:
            story = shorter
        for line in (story.events, *map(str, story.faults), str(failure), f"or: --replay {path}"):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    else:
        console.print(f"seed {seed} did not fail again: the run depends on more than its seed", highlight=False)


def run_one(
    seed: int,
    faults: Sequence[Fault],
    dimensions: Sequence[str] | None,
    console: Console,
    *,
    trace: bool,
    length: Length = USUAL,
) -> bool:
    """One run, told in detail. True when nothing was wrong."""
    for fault in faults:
        console.print(str(fault), markup=False, highlight=False)
    try:
        result: RunResult = run_seed(seed, faults, dimensions, _log_to_trace if trace else None, length)
    except SimulationFailure as failure:
        console.print(failure.events, markup=False, highlight=False, soft_wrap=True)
        console.print(str(failure), markup=False, highlight=False, soft_wrap=True)
        return False
    console.print(str(result), markup=False, highlight=False)
    return True


def _log_to_trace(loop: SimulationLoop) -> None:
    """Prints every event as it happens, the servers' logs among them."""
    trace_event = loop.trace.event

    def event(time_ns: int, node: str, kind: str, *detail: object) -> None:
        trace_event(time_ns, node, kind, *detail)
        sys.stdout.write(f"{loop.trace.latest()}\n")

    loop.trace.event = event  # type: ignore[method-assign]  # to print them, too
    logger = logging.getLogger("ottla")
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _TraceHandler) for handler in logger.handlers):
        logger.addHandler(_TraceHandler(loop))


class _TraceHandler(logging.Handler):
    def __init__(self, loop: SimulationLoop) -> None:
        super().__init__()
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        node = self._loop.current_process.node.name
        sys.stdout.write(f"{self._loop.now_ns / 1e9:14.6f}  {node:<12} {record.levelname:<10} {self.format(record)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m ottla.testing.simulation.run", description="The simulated cluster")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many seeds (default 100)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them (default 0)")
    parser.add_argument("--minutes", type=float, metavar="M", help="as many seeds as fit, instead of --seeds")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--seed", type=int, metavar="S", help="this seed alone")
    parser.add_argument("--dimensions", metavar="A,B", help=f"every run has exactly these; {NONE}: only what all have")
    parser.add_argument("--brief", action="store_true", help="short runs, of groups and transactions")
    parser.add_argument("--trace", action="store_true", help="with --seed or --replay: print what every node does")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run what a bundle describes")
    parser.add_argument("--bundles", type=Path, default=Path(), metavar="DIR", help="where bundles of failures go")
    options = parser.parse_args(arguments)
    console, dimensions = Console(), _named(options.dimensions)
    length = BRIEF if options.brief else USUAL
    if options.replay is not None:
        bundle = Bundle.from_json(options.replay.read_text(encoding="utf-8"))
        length = LENGTHS[bundle.scenario]
        ran = run_one(bundle.seed, bundle.faults, bundle.dimensions, console, trace=options.trace, length=length)
        return 0 if ran else 1
    if options.seed is not None:
        faults = faults_of(options.seed, dimensions, length)
        return 0 if run_one(options.seed, faults, dimensions, console, trace=options.trace, length=length) else 1
    failures = search_all(options.first, options.seeds, options.minutes, options.jobs, console, dimensions, length)
    if failures:
        explain(failures[0].seed, dimensions, console, options.bundles, length)
        console.print(f"failing seeds: {', '.join(str(failure.seed) for failure in failures)}", highlight=False)
    return 1 if failures else 0


def _named(text: str | None) -> list[str] | None:
    """What ``--dimensions`` means; ``None``: each seed's own."""
    if text is None:
        return None
    return [] if text == NONE else text.split(",")


if __name__ == "__main__":
    sys.exit(main())
