"""The exhaustive checker over the production core. ``make model`` walks further: a million states of each scope."""

import pytest

from ottla.testing.raft.model import Bounds, ModelChecker

STATES = 60_000

# Scopes of which everything is walked, and scopes of which the first STATES states are (breadth first).
WHOLE = (
    (Bounds(epoch=1, campaigns=1), 59_803),
    (Bounds(epoch=2, start="led", campaigns=1, appends=2), 23_730),
)
BEGINNINGS = (
    Bounds(epoch=1, campaigns=2),
    Bounds(epoch=2, start="led", campaigns=1, appends=1, crashes=1),
    Bounds(epoch=2, start="led", campaigns=2, shutdowns=1, losses=1, duplicates=1),
    Bounds(epoch=2, start="appended", campaigns=1, crashes=2),
    Bounds(epoch=2, start="led", campaigns=1, appends=1, crashes=1, losses=1, duplicates=1, records_per_fetch=1),
)
"""Two rivals; a crash around an append; a hand-over with loss and repetition; crashes before anything is synced; everything
at once around an append."""


@pytest.mark.parametrize(("bounds", "states"), WHOLE, ids=["one campaign", "appends under a campaign"])
def test_everything_that_can_happen_keeps_the_invariants(bounds: Bounds, states: int) -> None:
    checker = ModelChecker(bounds)

    assert checker.run(limit=1_000_000) == states
    assert checker.exhausted


@pytest.mark.parametrize(
    "bounds", BEGINNINGS, ids=["two campaigns", "crash and append", "hand-over", "unsynced", "everything"]
)
def test_everything_near_the_beginning_keeps_the_invariants(bounds: Bounds) -> None:
    assert ModelChecker(bounds).run(limit=STATES) >= STATES


@pytest.mark.parametrize("seed", range(3))
def test_deep_random_walks_keep_the_invariants(seed: int) -> None:
    bounds = Bounds(
        epoch=5,
        campaigns=10,
        appends=4,
        crashes=4,
        losses=4,
        duplicates=3,
        resignations=1,
        shutdowns=1,
        records_per_fetch=1,
        keep_late_answers=True,
    )

    assert ModelChecker(bounds).walk(seed, walks=100, steps=250) > 10_000
