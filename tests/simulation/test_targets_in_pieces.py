"""Groups of the simulation are small: here their targets come in many pieces all the same, whatever happens in between."""

import pytest

from ottla.broker.coordinator.decisions.groups.assignors import pieces
from ottla.testing.simulation.scenario import run_seed

STEPS = 5
"""Of a piece: a target of two members takes several."""


@pytest.mark.parametrize("seed", range(6))
def test_groups_keep_their_promises_where_targets_come_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_STEPS", STEPS)
    run_seed(seed, None, ("groups", "migrants", "group_copiers"))
