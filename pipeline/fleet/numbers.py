"""Random numbers that are a function of what they are for: a counter goes in, its number comes out (splitmix64).

A generator that steps would make the thousandth record depend on the 999 before it. Integers only: floating point functions differ in the
last bit between processors, and one bit makes another record.
"""

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Mixed = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def mixed(seed: int, purpose: int, *counters: Integers) -> Mixed:
    """64 random bits for each row of the counters; another purpose gives other bits."""
    state = _finished(np.array([seed & 0xFFFF_FFFF_FFFF_FFFF], np.uint64) + np.array([purpose], np.uint64) * _STEP)
    for counter in counters:
        state = _finished(state + counter.astype(np.uint64) * _STEP)
    return state


def below(bits: Mixed, bound: int, shift: int = 0) -> Integers:
    """Numbers 0 to ``bound`` - 1 of 32 of the bits, those from ``shift`` on; ``bound`` is at most 2**31."""
    part = (bits >> np.uint64(shift)) & np.uint64(0xFFFF_FFFF)
    return ((part * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def _finished(state: Mixed) -> Mixed:
    state = state + _STEP
    state = (state ^ (state >> _SHIFTS[0])) * _FIRST
    state = (state ^ (state >> _SHIFTS[1])) * _SECOND
    return state ^ (state >> _SHIFTS[2])
