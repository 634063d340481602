"""The exhaustive checker over the production core. ``make model`` walks further: a million states of each scope."""

import pytest

from ottla.testing.raft.model.bounds import Bounds
from ottla.testing.raft.model.checker import ModelChecker
from ottla.testing.raft.model.scopes import (
    DEEP,
    DEEP_SNAPSHOTS,
    DEEP_VOTERS,
    SCOPES,
    SNAPSHOT_SCOPES,
    VOTER_SCOPES,
)

STATES = 30_000

# Scopes of which everything is walked, and scopes of which the first STATES states are (breadth first).
WHOLE = {
    "one campaign, from cold": 59_803,
    "a campaign against a leader that appends twice": 23_730,
    "a voter joins under a campaign": 39_039,
    "one who lags fetches a snapshot": 2_679,
}
BEGINNINGS = (
    "two rivals from cold",
    "a crash and a campaign around an append",
    "a hand-over with loss and repetition",
    "two crashes and a campaign before anything is synced",
    "a campaign, a crash, loss and repetition around an append",
    *VOTER_SCOPES.keys() - WHOLE.keys(),
    *SNAPSHOT_SCOPES.keys() - WHOLE.keys(),
)
ALL = {**SCOPES, **VOTER_SCOPES, **SNAPSHOT_SCOPES}


@pytest.mark.parametrize(("name", "states"), WHOLE.items())
def test_everything_that_can_happen_keeps_the_invariants(name: str, states: int) -> None:
    checker = ModelChecker(ALL[name])

    assert checker.run(limit=1_000_000) == states
    assert checker.exhausted


@pytest.mark.parametrize("name", sorted(BEGINNINGS))
def test_everything_near_the_beginning_keeps_the_invariants(name: str) -> None:
    assert ModelChecker(ALL[name]).run(limit=STATES) >= STATES


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("bounds", [DEEP, DEEP_VOTERS, DEEP_SNAPSHOTS], ids=["logs", "voters", "snapshots"])
def test_deep_random_walks_keep_the_invariants(bounds: Bounds, seed: int) -> None:
    assert ModelChecker(bounds).walk(seed, walks=60, steps=250) > 6_000
