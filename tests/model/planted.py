"""What a planted bug is, and who may catch it: the exhaustive checker, its random walks, or the simulator."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.quorum.raft import parking
from ottla.testing.raft.model.bounds import Bounds
from ottla.testing.raft.model.checker import ModelChecker
from ottla.testing.raft.model.scopes import DEEP, DEEP_SNAPSHOTS, DEEP_VOTERS, SNAPSHOT_SCOPES, VOTER_SCOPES
from ottla.testing.raft.seeds import cluster_of, plan_of, run_plan

Catcher = Callable[[int], None]
SHALLOW = (
    Bounds(epoch=1, campaigns=2),
    Bounds(epoch=2, start="led", campaigns=1, crashes=1, appends=1),
    Bounds(epoch=2, start="appended", campaigns=1, crashes=2),
)


def exhaustive(scope: int) -> None:
    ModelChecker(SHALLOW[scope]).run(limit=300_000 if scope == 2 else 60_000)


def exhaustive_in(name: str) -> Catcher:
    """Of a scope in which voters change or snapshots are taken. There is no seed."""
    return partial(_walk_all, {**VOTER_SCOPES, **SNAPSHOT_SCOPES}[name])


def _walk_all(bounds: Bounds, seed: int) -> None:
    ModelChecker(bounds).run(limit=60_000)


def random_walks(seed: int) -> None:
    ModelChecker(DEEP).walk(seed, walks=400, steps=250)


def random_walks_with_voter_changes(seed: int) -> None:
    ModelChecker(DEEP_VOTERS).walk(seed, walks=100, steps=250)


def random_walks_with_snapshots(seed: int) -> None:
    ModelChecker(DEEP_SNAPSHOTS).walk(seed, walks=100, steps=250)


def simulator(seed: int) -> None:
    """In even seeds voters come and go and snapshots are taken."""
    plan = plan_of(seed)
    run_plan(plan, cluster_of(plan))


def simulator_out_of_step(seed: int) -> None:
    """As `simulator`, with every fetch answered as those are that come behind a crowd."""
    with patch.object(parking, "IN_STEP", 0):
        simulator(seed)


SEEDED = (
    random_walks,
    random_walks_with_voter_changes,
    random_walks_with_snapshots,
    simulator,
    simulator_out_of_step,
)


class Bug(NamedTuple):
    """``place.name`` becomes ``mutation``; ``catcher(seed)`` must fail with ``story`` in its message."""

    what: str
    place: Any
    name: str
    mutation: Callable[..., Any]
    catcher: Catcher
    seed: int
    story: str
