"""Whether some order of all operations explains what each was answered (Wing and Gong; just-in-time, as Lowe has it).

Exponential in the number of operations that are under way at once, and what nobody heard of is under way for ever. So it gives up
beyond a number of configurations, and says so.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from ottla.testing.checker.operations import FOREVER

State = TypeVar("State", bound=Hashable)
CONFIGURATIONS_MAX = 200_000


class Verdict(Enum):
    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNKNOWN = "unknown"


class Step(NamedTuple, Generic[State]):
    """``apply``: the states after it, none if it cannot have been answered so in that state. ``end`` FOREVER: nobody was answered;
    of such steps with the same ``twin`` it does not matter which has taken effect, so the earliest is tried alone."""

    begin: int
    end: int
    apply: Callable[[State], Sequence[State]]
    twin: str = ""


class Result(NamedTuple):
    """``at``: which step cannot be explained, -1 if all can; ``tried``: configurations."""

    verdict: Verdict
    at: int
    tried: int


def check(steps: Sequence[Step[State]], initial: State, limit: int = CONFIGURATIONS_MAX) -> Result:
    """A configuration is a state and the set of operations under way that have taken effect in it, a bit each."""
    events = sorted(
        [(each.begin, 0, number) for number, each in enumerate(steps)]
        + [(each.end, 1, number) for number, each in enumerate(steps) if each.end != FOREVER]
    )
    configurations: set[tuple[State, int]] = {(initial, 0)}
    pending: dict[int, int] = {}  # step -> its bit
    free: list[int] = []
    tried = 0
    for _, is_end, number in events:
        if not is_end:
            pending[number] = free.pop() if free else 1 << len(pending)
            continue
        bit = pending[number]
        configurations, cost = _until_done(steps, configurations, pending, bit, limit - tried)
        tried += cost
        if tried >= limit:
            return Result(Verdict.UNKNOWN, number, tried)
        if not configurations:
            return Result(Verdict.NOT_LINEARIZABLE, number, tried)
        configurations = {(state, done & ~bit) for state, done in configurations}
        del pending[number]
        free.append(bit)
    return Result(Verdict.LINEARIZABLE, -1, tried)


def _until_done(
    steps: Sequence[Step[State]],
    configurations: set[tuple[State, int]],
    pending: dict[int, int],
    bit: int,
    limit: int,
) -> tuple[set[tuple[State, int]], int]:
    """All in which the one with that bit has taken effect, from any order of those under way; and how many were looked at."""
    found: set[tuple[State, int]] = set()
    seen = set(configurations)
    work = list(configurations)
    while work and len(seen) < limit:
        configuration = state, done = work.pop()
        if done & bit:
            found.add(configuration)
            continue
        for number in _worth_trying(steps, pending, done):
            other = pending[number]
            for after in steps[number].apply(state):
                following = (after, done | other)
                if following not in seen:
                    seen.add(following)
                    work.append(following)
    return found, len(seen)


def _worth_trying(steps: Sequence[Step[State]], pending: dict[int, int], done: int) -> Iterator[int]:
    tried: set[str] = set()
    for number, bit in pending.items():
        twin = steps[number].twin
        if not done & bit and twin not in tried:
            yield number
            if twin:
                tried.add(twin)
