"""Keeps the real world out of a run: nothing in it may depend on the machine's clock or on its randomness.

Libraries that read them (aiokafka asks `time.monotonic` everywhere) get virtual time and seeded numbers. Our own code
has no business there: it is given a clock and a generator, and gets an error that says so.
"""

import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

from ottla.runtime.simulation.loop import SimulationLoop

_RANDOM_FUNCTIONS = (
    *("betavariate", "choice", "choices", "expovariate", "gauss", "getrandbits", "normalvariate", "randbytes"),
    *("randint", "random", "randrange", "sample", "shuffle", "triangular", "uniform"),
)


class ForbiddenError(Exception):
    """Ottla's own code read the real clock or real randomness during a simulated run."""


@contextmanager
def guarded(loop: SimulationLoop) -> Iterator[None]:
    """For the length of the block, on this thread only."""
    rng = loop.rng("libraries")
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (time, "time", lambda: loop.wall_ns() / 1e9),
        (time, "time_ns", loop.wall_ns),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: round(loop.time() * 1e9)),
        (time, "perf_counter", loop.time),
        (time, "perf_counter_ns", lambda: round(loop.time() * 1e9)),
        (time, "sleep", lambda seconds: None),
        (os, "urandom", rng.randbytes),
        (uuid, "uuid1", lambda *_: uuid.UUID(bytes=rng.randbytes(16), version=1)),
        (uuid, "uuid4", lambda: uuid.UUID(bytes=rng.randbytes(16), version=4)),
        (secrets, "token_bytes", lambda count=32: rng.randbytes(count)),
        (secrets, "token_hex", lambda count=32: rng.randbytes(count).hex()),
        (secrets, "randbelow", rng.randrange),
        (secrets, "randbits", rng.getrandbits),
        (secrets, "choice", rng.choice),
        *((random, name, getattr(rng, name)) for name in _RANDOM_FUNCTIONS),
    ]
    with ExitStack() as stack:
        for module, name, substitute in replaced:
            stack.enter_context(patch.object(module, name, _guard(module, name, substitute)))
        yield


def _guard(module: Any, name: str, substitute: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(module, name)
    thread = threading.get_ident()

    def guard(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:  # a test runner's time-out, for one
            return real(*args, **kwargs)
        if _is_ours(sys._getframe(1)):
            message = f"{module.__name__}.{name} was called in a simulated run: use the Host's clock and generator"
            raise ForbiddenError(message)
        return substitute(*args, **kwargs)

    return guard


def _is_ours(caller: FrameType) -> bool:
    module = caller.f_globals.get("__name__", "")
    return module.startswith("ottla.") and not module.startswith("ottla.runtime.simulation.")
