"""Runs a program in a simulation from its first line to its last."""

import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ottla.runtime.simulation.guards import guarded
from ottla.runtime.simulation.loop import SimulationLoop

T = TypeVar("T")
Program = Callable[[SimulationLoop], Coroutine[Any, Any, T]]

_LIMIT_S = 3600.0


def simulate(program: Program[T], seed: int, *, limit_s: float = _LIMIT_S) -> T:
    """Runs ``program(loop)`` on a new loop and returns its result. ``limit_s`` is virtual time."""
    with collected_afterwards():
        return _simulate(program, seed, limit_s)


def _simulate(program: Program[T], seed: int, limit_s: float) -> T:
    loop = SimulationLoop(seed)
    try:
        return run_on(loop, program, limit_s=limit_s)
    finally:
        loop.close()


def run_on(loop: SimulationLoop, program: Program[T], *, limit_s: float = _LIMIT_S) -> T:
    """As `simulate`, on a loop of the caller's, who can look at its trace afterwards and closes it.

    DeadlockError when nothing can happen any more, TimeLimitError when it takes too long, LivelockError when time
    stands still. Garbage is not collected meanwhile: finalisers would run at moments no seed controls.
    """
    loop.limit_ns = loop.now_ns + round(limit_s * 1e9)
    with _uncollected():
        try:
            with guarded(loop):
                return loop.run_until_complete(program(loop))
        finally:
            loop.keep_unfinished_tasks()


@contextmanager
def collected_afterwards() -> Iterator[None]:
    """For the call that makes a loop, runs it and closes it. What it leaves is one heap of garbage, and young: to look at that alone, and
    once, costs a third of what the collector takes that finds it piece by piece, and the next run uses the memory again. Where
    whoever calls has turned collection off, all is left."""
    with _uncollected() as collecting:
        yield
        if collecting:
            gc.collect(0)


@contextmanager
def _uncollected() -> Iterator[bool]:
    """Whether there was collection before."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield collecting
    finally:
        if collecting:
            gc.enable()
