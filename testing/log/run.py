"""Drives random histories of logs and shrinks one that fails.

python -m ottla.testing.log.run --steps 1000000       # many histories
python -m ottla.testing.log.run --seed 17             # one again; a failure prints this command
"""

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from random import Random

from ottla.testing.log.machine import COMPACTING, DELETING, Action, Machine

STEPS_PER_HISTORY = 150
STEP_MAX = 30_000

Step = tuple[Action, int]


class HistoryFailure(Exception):
    """A history that a log got wrong; ``steps`` are those it takes to see it."""

    def __init__(self, seed: int, steps: Sequence[Step], error: BaseException) -> None:
        told = "\n".join(f"  {action.__name__}({number})" for action, number in steps)
        super().__init__(
            f"history {seed}: {type(error).__name__}: {error}\n{told}\nreplay: python -m ottla.testing.log.run --seed {seed}"
        )
        self.seed = seed
        self.steps = list(steps)


def steps_of(seed: int) -> list[Step]:
    """The steps of a history: every other one is of a compacted log."""
    rng = Random(f"{seed}/steps")
    actions = COMPACTING if seed % 2 else DELETING
    return [(rng.choice(actions), rng.randrange(STEP_MAX)) for _ in range(STEPS_PER_HISTORY)]


def run_steps(seed: int, steps: Sequence[Step]) -> Machine:
    """Raises what the machine raises: an AssertionError, or whatever the log came to."""
    machine = Machine(seed, compacted=seed % 2 == 1)
    for action, number in steps:
        action(machine, number)
    machine.check()
    return machine


def run_history(seed: int) -> Counter[str]:
    """How often each step was taken. Raises HistoryFailure, with as few steps as it needs."""
    steps = steps_of(seed)
    try:
        run_steps(seed, steps)
    except Exception as error:  # whatever it is: shrinking keeps what fails
        fewest = shrunk(seed, steps)
        raise HistoryFailure(seed, fewest, error) from error
    return Counter(action.__name__ for action, _ in steps)


def shrunk(seed: int, steps: list[Step]) -> list[Step]:
    """Leaves steps out, many at once at first, as long as the history still fails."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if _fails(seed, fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps


def _fails(seed: int, steps: list[Step]) -> bool:
    try:
        run_steps(seed, steps)
    except Exception:  # noqa: BLE001 - whatever it is
        return True
    return False


def run_many(steps: int, first: int = 0) -> Counter[str]:
    """Histories from ``first`` on until so many steps are taken; how often each was. Raises HistoryFailure."""
    taken: Counter[str] = Counter()
    seed = first
    while taken.total() < steps:
        taken += run_history(seed)
        seed += 1
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a history failed."""
    parser = argparse.ArgumentParser(prog="python -m ottla.testing.log.run", description="Random histories of a log")
    parser.add_argument("--steps", type=int, default=100_000, metavar="N", help="how many steps (default 100,000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first history (default 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="this history alone")
    options = parser.parse_args(arguments)
    began_s = time.process_time()
    try:
        taken = run_history(options.seed) if options.seed is not None else run_many(options.steps, options.first)
    except HistoryFailure as failure:
        traceback.print_exception(failure.__cause__)
        sys.stdout.write(f"{failure}\n")
        return 1
    told = ", ".join(f"{name} {count}" for name, count in taken.most_common())
    sys.stdout.write(f"{taken.total()} steps in {time.process_time() - began_s:.0f} s of CPU: {told}\n")
    return 0


if __name__ == "__main__":
    logging.getLogger("ottla").setLevel(logging.ERROR)  # damage is what it makes
    sys.exit(main())
