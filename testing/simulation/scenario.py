"""One run: a seed, its dimensions and faults, producers and other users; then the faults end, the cluster heals, and everything
is read.

result = run_seed(17)          # raises SimulationFailure with the story and the command that replays it
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import NamedTuple
from unittest.mock import patch

from ottla.runtime.simulation.faults import Fault
from ottla.runtime.simulation.loop import DeadlockError, LivelockError, SimulationLoop, TimeLimitError
from ottla.runtime.simulation.run import collected_afterwards, run_on
from ottla.testing.simulation.course import NODES, Run
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.dimensions import brief_dimensions_of, dimensions_of, made
from ottla.testing.simulation.invariants import Invariants
from ottla.testing.simulation.length import BRIEF, USUAL, Length
from ottla.testing.simulation.observer import observed
from ottla.testing.simulation.plan import draw
from ottla.testing.simulation.violations import InvariantViolation
from ottla.testing.simulation.workload import BrokenPromise

FAULTS_UNTIL_MS = USUAL.faults_until_ms
LIMIT_S = 90.0
EVENTS_SHOWN = 120
NONE = "none"


class RunResult(NamedTuple):
    """``digest`` and ``events`` are the trace's: equal for equal runs. Times in seconds.

    ``counts``: records acknowledged, what all nodes' logs did, and what the dimensions count.
    """

    seed: int
    dimensions: tuple[str, ...]
    digest: int
    events: int
    virtual_s: float
    healed_s: float
    counts: dict[str, int]


class SimulationFailure(Exception):
    """A run that broke an invariant. ``events`` are the last of each node, in order of time."""

    def __init__(
        self,
        seed: int,
        dimensions: Sequence[str],
        faults: Sequence[Fault],
        error: BaseException,
        events: str,
        length: Length = USUAL,
    ) -> None:
        forced = "" if tuple(dimensions) == drawn(seed, length) else f" --dimensions {','.join(dimensions) or NONE}"
        forced += " --brief" if length == BRIEF else ""
        super().__init__(
            f"seed {seed} ({', '.join(dimensions) or NONE}): {error}\n"
            f"replay: python -m ottla.testing.simulation.run --seed {seed}{forced}"
        )
        self.seed = seed
        self.dimensions = tuple(dimensions)
        self.length = length
        self.faults = list(faults)
        self.error = error
        self.events = events

    @property
    def invariant(self) -> str:
        """Which one."""
        return self.error.invariant if isinstance(self.error, InvariantViolation) else type(self.error).__name__


def drawn(seed: int, length: Length) -> tuple[str, ...]:
    """The dimensions of a seed's run of that length."""
    return brief_dimensions_of(seed) if length == BRIEF else dimensions_of(seed)


def faults_of(seed: int, dimensions: Iterable[str] | None = None, length: Length = USUAL) -> list[Fault]:
    """The faults that belong to a seed: its weather, and what its dimensions draw."""
    having = made(seed, drawn(seed, length) if dimensions is None else dimensions, length)
    return _draw(seed, having, length)


def _draw(seed: int, dimensions: Sequence[Dimension], length: Length) -> list[Fault]:
    nodes = [f"node-{number}" for number in range(1, NODES + 1 + sum(each.plain_brokers for each in dimensions))]
    calm = any(each.calm for each in dimensions)
    until_ms = length.faults_until_ms
    faults = [] if calm else draw(Random(f"{seed}/faults"), nodes, until_ms, length.faults_max)
    for dimension in dimensions:
        faults += dimension.faults(nodes, until_ms)
    return sorted(faults, key=lambda fault: fault.time_ms)


def run_seed(
    seed: int,
    faults: Sequence[Fault] | None = None,
    dimensions: Iterable[str] | None = None,
    on_loop: Callable[[SimulationLoop], None] | None = None,
    length: Length = USUAL,
) -> RunResult:
    """``faults``, ``dimensions``: others than the seed's own. ``on_loop`` gets the loop before it runs. Raises
    SimulationFailure."""
    with collected_afterwards():
        return _run_seed(seed, faults, dimensions, on_loop, length)


def _run_seed(
    seed: int,
    faults: Sequence[Fault] | None,
    dimensions: Iterable[str] | None,
    on_loop: Callable[[SimulationLoop], None] | None,
    length: Length,
) -> RunResult:
    having = made(seed, drawn(seed, length) if dimensions is None else dimensions, length)
    names = tuple(each.name for each in having)
    own = _draw(seed, having, length)  # also when others are wanted: a dimension may draw more, later
    chosen = own if faults is None else list(faults)
    loop = SimulationLoop(seed)
    if on_loop is not None:
        on_loop(loop)
    run = Run(loop, chosen, having, length)
    try:
        with observed(run.invariants), _errors_noticed(run.invariants), _limited(having):
            run_on(loop, run.main, limit_s=LIMIT_S)
    except (InvariantViolation, BrokenPromise, DeadlockError, LivelockError, TimeLimitError) as error:
        first = run.invariants.first or error
        raise SimulationFailure(seed, names, chosen, first, loop.trace.tail(EVENTS_SHOWN), length) from error
    finally:
        loop.close()
    trace = loop.trace
    return RunResult(seed, names, trace.digest, trace.count, loop.now_ns / 1e9, run.healed_s, run.counts())


@contextmanager
def _limited(dimensions: Iterable[Dimension]) -> Iterator[None]:
    with ExitStack() as stack:
        for dimension in dimensions:
            for owner, name, value in dimension.limits:
                stack.enter_context(patch.object(owner, name, value))
        yield


@contextmanager
def _errors_noticed(invariants: Invariants) -> Iterator[None]:
    """An error that the program logged with its traceback is a bug, though it went on. What the loop would print, it keeps."""
    handler, logger, loops = _ErrorHandler(invariants), logging.getLogger("ottla"), logging.getLogger("asyncio")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR if level == logging.NOTSET else level)
    logger.propagate, loops.disabled = False, True
    try:
        yield
    finally:
        loops.disabled = False
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _ErrorHandler(logging.Handler):
    def __init__(self, invariants: Invariants) -> None:
        super().__init__(logging.ERROR)
        self._invariants = invariants

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None  # False, too
        if error is not None and not any(
            forgives(record.getMessage(), error) for forgives in self._invariants.forgiving
        ):
            self._invariants.violated("nothing fails unseen", f"{record.getMessage()}: {error!r}")
