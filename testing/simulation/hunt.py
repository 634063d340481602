"""Which drawn seed catches each planted bug first: the proof that what seeds draw meets the windows of bugs.

python -m ottla.testing.simulation.hunt                                # all of them, 300 seeds each at most
python -m ottla.testing.simulation.hunt "do not truncate" --seeds 50   # one

About a quarter of an hour on two cores. The seeds must be clean without a bug: `run --seeds 300` first.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from ottla.testing.simulation.dimensions import dimensions_of
from ottla.testing.simulation.planted import BUGS, planted
from ottla.testing.simulation.scenario import SimulationFailure, run_seed

SEEDS = 300


class Caught(NamedTuple):
    """``seed`` is the first that failed, -1 where none did; ``invariant`` what noticed."""

    name: str
    seed: int
    invariant: str

    def __str__(self) -> str:
        return f"{self.name}: seed {self.seed}, {self.invariant}" if self.seed >= 0 else f"{self.name}: not caught"


def hunt(name: str, seeds: int) -> Caught:
    """Runs seeds with the bug, from 0 on, until one fails: those that draw one of the dimensions that its own run has, or all."""
    bug = next(each for each in BUGS if each.name == name)
    with planted(bug):
        for seed in range(seeds):
            if bug.dimensions and not set(bug.dimensions).intersection(dimensions_of(seed)):
                continue
            try:
                run_seed(seed)
            except SimulationFailure as failure:
                return Caught(name, seed, failure.invariant)
    return Caught(name, -1, "")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a bug was not caught."""
    names = [bug.name for bug in BUGS]
    parser = argparse.ArgumentParser(prog="python -m ottla.testing.simulation.hunt", description="Planted bugs")
    parser.add_argument("bugs", nargs="*", metavar="BUG", help=f"which (default: all): {'; '.join(names)}")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"how many at most (default {SEEDS})")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.bugs if name not in names]
    if unknown:
        parser.error(f"no planted bug {', '.join(unknown)}; there are: {'; '.join(names)}")
    missed = 0
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(hunt, name, options.seeds) for name in options.bugs or names]
        for done in as_completed(running):
            missed += done.result().seed < 0
            sys.stdout.write(f"{done.result()}\n")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
