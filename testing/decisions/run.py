"""Drives random histories of the controller's decisions.

python -m ottla.testing.decisions.run --seeds 1000      # many histories
python -m ottla.testing.decisions.run --seed 17 --trace # one again, step by step; a failure prints this command
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence

from ottla.testing.decisions.history import HistoryFailure, Outcome, run_history


def run_many(seeds: Iterable[int]) -> tuple[list[Outcome], list[HistoryFailure]]:
    """All of them, whatever the others come to."""
    outcomes, failures = list[Outcome](), list[HistoryFailure]()
    for seed in seeds:
        try:
            outcomes.append(run_history(seed))
        except HistoryFailure as failure:
            failures.append(failure)
            _tell(failure)
    return outcomes, failures


def tell_one(seed: int, *, trace: bool) -> int:
    """One history in detail; the exit code."""
    try:
        outcome = run_history(seed, _write if trace else None)
    except HistoryFailure as failure:
        _tell(failure)
        return 1
    _write(f"{outcome.plan}: {outcome.records} records of metadata, {outcome.committed} committed, {outcome.digest}")
    return 0


def _tell(failure: HistoryFailure) -> None:
    traceback.print_exception(failure.__cause__)
    _write(str(failure))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a history failed."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.testing.decisions.run", description="Random histories of the controller's decisions"
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first history (default 0)")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many histories (default 100)")
    parser.add_argument("--seed", type=int, metavar="N", help="this history alone")
    parser.add_argument("--trace", action="store_true", help="and what happens in it")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return tell_one(options.seed, trace=options.trace)
    began_s = time.process_time()
    outcomes, failures = run_many(range(options.first, options.first + options.seeds))
    records, committed = sum(each.records for each in outcomes), sum(each.committed for each in outcomes)
    profiles = Counter(each.plan.profile for each in outcomes)
    told = ", ".join(f"{name} {count}" for name, count in sorted(profiles.items()))
    _write(
        f"{len(outcomes)} histories went well, {len(failures)} failed, {time.process_time() - began_s:.0f} s of CPU: "
        f"{records} records of metadata, {committed} records committed at the end; {told}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
