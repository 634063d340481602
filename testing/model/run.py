"""``make model``: walks the quorum's states, at least a million of them, and says what was walked.

Exit code 1 and a shortest path when an invariant does not hold.
"""

import argparse
import gc
import sys
import time

from ottla.testing.raft.model import Bounds, ModelChecker, ModelViolation

SCOPES: tuple[tuple[str, Bounds], ...] = (
    ("one campaign, from cold", Bounds(epoch=1, campaigns=1)),
    ("a campaign against a leader that appends twice", Bounds(epoch=2, start="led", campaigns=1, appends=2)),
    ("a crash and a campaign", Bounds(epoch=2, start="led", campaigns=1, crashes=1)),
    ("two crashes and a campaign before anything is synced", Bounds(epoch=2, start="appended", campaigns=1, crashes=2)),
    ("two rivals from cold", Bounds(epoch=1, campaigns=2)),
    ("a crash and a campaign around an append", Bounds(epoch=2, start="led", campaigns=1, appends=1, crashes=1)),
    (
        "a hand-over with loss and repetition",
        Bounds(epoch=2, start="led", campaigns=2, shutdowns=1, losses=1, duplicates=1),
    ),
    (
        "a campaign, a crash, loss and repetition around an append",
        Bounds(epoch=2, start="led", campaigns=1, appends=1, crashes=1, losses=1, duplicates=1, records_per_fetch=1),
    ),
    ("two epochs, a resignation", Bounds(epoch=3, start="led", campaigns=2, resignations=1, appends=1)),
)
DEEP = Bounds(
    epoch=5,
    campaigns=10,
    appends=4,
    crashes=4,
    losses=4,
    duplicates=3,
    resignations=1,
    shutdowns=1,
    records_per_fetch=1,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="at most so many states of each scope")
    parser.add_argument("--walks", type=int, default=2000, help="random walks of 250 steps over a far larger scope")
    arguments = parser.parse_args()
    gc.disable()  # nothing here is cyclic, and there are millions of tuples
    try:
        total = sum(_walk_all(name, bounds, arguments.states) for name, bounds in SCOPES)
        started = time.perf_counter()
        steps = ModelChecker(DEEP).walk(seed=1, walks=arguments.walks, steps=250)
    except ModelViolation as violation:
        sys.stdout.write(f"{violation}\n")
        return 1
    sys.stdout.write(f"{steps:>10,} steps of random walks, {time.perf_counter() - started:.0f} s\n")
    sys.stdout.write(f"{total:>10,} distinct states; every invariant held in each\n")
    return 0


def _walk_all(name: str, bounds: Bounds, limit: int) -> int:
    started = time.perf_counter()
    checker = ModelChecker(bounds)
    states = checker.run(limit)
    extent = "all" if checker.exhausted else "first"
    seconds = time.perf_counter() - started
    sys.stdout.write(f"{states:>10,} states ({extent:>5}) {seconds:>4.0f} s  {name}\n")
    sys.stdout.flush()
    return states


if __name__ == "__main__":
    sys.exit(main())
