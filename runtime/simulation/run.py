"""Runs a program in a simulation from its first line to its last."""

import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.runtime.simulation.guards import guarded
from ottla.runtime.simulation.loop import SimulationLoop

T = TypeVar("T")
Program = Callable[[SimulationLoop], Coroutine[Any, Any, T]]

_LIMIT_S = 3600.0


def simulate(program: Program[T], seed: int, *, limit_s: float = _LIMIT_S) -> T:
    """Runs ``program(loop)`` on a new loop and returns its result. ``limit_s`` is virtual time."""
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
    collecting = gc.isenabled()
    gc.disable()
    try:
        with guarded(loop):
            return loop.run_until_complete(program(loop))
    finally:
        loop.keep_unfinished_tasks()
        if collecting:
            gc.enable()
