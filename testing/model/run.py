"""``make model``: walks the quorum's states, at least a million of them, and says what was walked.

Exit code 1 and a shortest path when an invariant does not hold.
"""

import argparse
import gc
import resource
import sys
import time

from ottla.testing.raft.model.bounds import Bounds
from ottla.testing.raft.model.checker import ModelChecker, ModelViolation
from ottla.testing.raft.model.scopes import DEEP, DEEP_SNAPSHOTS, DEEP_VOTERS, SCOPES, SNAPSHOT_SCOPES, VOTER_SCOPES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="at most so many states of each scope")
    parser.add_argument("--walks", type=int, default=2000, help="random walks of 250 steps over a far larger scope")
    arguments = parser.parse_args()
    gc.disable()  # nothing here is cyclic, and there are millions of tuples
    try:
        scopes = {**SCOPES, **VOTER_SCOPES, **SNAPSHOT_SCOPES}
        total = sum(_walk_all(name, bounds, arguments.states) for name, bounds in scopes.items())
        for name, bounds in {"": DEEP, ", voters change": DEEP_VOTERS, ", snapshots too": DEEP_SNAPSHOTS}.items():
            _walk_at_random(name, bounds, arguments.walks)
    except ModelViolation as violation:
        sys.stdout.write(f"{violation}\n")
        return 1
    sys.stdout.write(f"{total:>10,} distinct states; every invariant held in each\n")
    return 0


def _walk_at_random(name: str, bounds: Bounds, walks: int) -> None:
    started = time.process_time()
    steps = ModelChecker(bounds).walk(seed=1, walks=walks, steps=250)
    sys.stdout.write(f"{steps:>10,} steps of random walks{name}, {time.process_time() - started:.0f} s of CPU\n")
    sys.stdout.flush()


def _walk_all(name: str, bounds: Bounds, limit: int) -> int:
    started = time.process_time()
    checker = ModelChecker(bounds)
    states = checker.run(limit)
    extent = "all" if checker.exhausted else "first"
    seconds = time.process_time() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    figures = (
        f"{seconds:>4.0f} s of CPU, {states / max(seconds, 0.01):>7,.0f} a second, {peak_mb:>5,} MB at most so far"
    )
    sys.stdout.write(f"{states:>10,} states ({extent:>5}) {figures}  {name}\n")
    sys.stdout.flush()
    return states


if __name__ == "__main__":
    sys.exit(main())
