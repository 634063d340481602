"""What a planted bug is: a rule taken away, and the run that notices."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.runtime.simulation.faults import Fault

Patch = tuple[Any, str, Any]


class PlantedBug(NamedTuple):
    """``invariants``: any of them may be the first to notice."""

    name: str
    rule: str
    patches: tuple[Patch, ...]
    seed: int
    faults: tuple[Fault, ...]
    invariants: tuple[str, ...]
    dimensions: tuple[str, ...] = ()


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """The program has the bug for the length of the block."""
    with ExitStack() as stack:
        for owner, name, wrong in bug.patches:
            stack.enter_context(patch.object(owner, name, wrong))
        yield


def split_off(time_ms: int, node: int, duration_ms: int) -> tuple[Fault, ...]:
    """One node is cut off from the others while clients still reach it: it goes on as the leader it was."""
    return tuple(cut for other in (1, 2, 3) if other != node for cut in cut_between(time_ms, node, other, duration_ms))


def cut_between(time_ms: int, one: int, other: int, duration_ms: int) -> tuple[Fault, ...]:
    """Both directions of one link."""
    ways = ((f"node-{one}", f"node-{other}"), (f"node-{other}", f"node-{one}"))
    return tuple(Fault(time_ms, "cut", way, duration_ms) for way in ways)


def slow(time_ms: int, source: int, target: int, least_ms: float, most_ms: float, duration_ms: int) -> Fault:
    """One direction of a link takes its time."""
    return Fault(time_ms, "slow-link", (f"node-{source}", f"node-{target}", least_ms, most_ms), duration_ms)
