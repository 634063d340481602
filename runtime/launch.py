"""Starts the program's event loop: uvloop, on an allocator that keeps the memory it has, beside a collector that leaves it alone.

glibc gives every block of 128 KB or more a mapping of its own and returns it when freed, so that a broker that handles
1 MB buffers faults every page in again for each of them: 3 to 5 times the cost of the path. mallopt(3) changes that
in the running process; no restart with MALLOC_* variables is needed.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from ottla.runtime import native
from ottla.runtime.garbage import Garbage

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_MMAP_THRESHOLD_BYTES = 32 << 20  # the most that every glibc accepts on 64 bits
_TRIM_THRESHOLD_BYTES = 256 << 20
_TOP_PAD_BYTES = 16 << 20  # address space until it is touched: it does not count as resident
_ARENAS_MAX = 2  # one for the loop, one for the threads: each arena keeps its own free memory


def tune_allocator() -> bool:
    """Makes large buffers cheap to allocate again and again. False where the C library has no such options."""
    options = (
        (_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES),
        (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES),
        (_M_TOP_PAD, _TOP_PAD_BYTES),
        (_M_ARENA_MAX, _ARENAS_MAX),
    )
    accepted = [native.set_malloc_option(option, value) for option, value in options]
    return all(accepted)


def run(main: Callable[[], Coroutine[Any, Any, None]], garbage: Garbage | None = None) -> None:
    """Runs ``main()`` to its end on a new uvloop. ``garbage`` is for who wants to `look`."""
    tune_allocator()
    garbage = garbage or Garbage()
    garbage.start()
    try:
        uvloop.run(main())
    finally:
        garbage.stop()
