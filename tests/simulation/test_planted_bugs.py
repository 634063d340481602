"""Each planted bug is caught by its run, and the same run passes without it."""

from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from ottla.runtime.simulation.faults import Bundle, Fault
from ottla.testing.simulation import course
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.hunt import Caught, hunt
from ottla.testing.simulation.planted import BUGS, PlantedBug, planted
from ottla.testing.simulation.run import main
from ottla.testing.simulation.scenario import SimulationFailure, run_seed

SEEDS_TRIED = 6
"""The pinned one, and its neighbours: a change of the product that shifts who comes first may hide a bug from one course of events."""
HEAL_S = 10.0
"""A third of the bugs keep a cluster from healing, and to wait for that is most of their runs' time. Without a bug these heal within some seconds."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    seeds = range(bug.seed, bug.seed + SEEDS_TRIED)
    found = next(filter(None, (broken_rule(bug, seed) for seed in seeds)), "nothing broke")
    assert found in bug.invariants


def broken_rule(bug: PlantedBug, seed: int) -> str | None:
    """The invariant that the bug breaks in that run, which is clean without it."""
    with patch.object(course, "HEAL_S", HEAL_S), patch.object(Dimension, "heal_s", HEAL_S):
        try:
            with planted(bug):
                run_seed(seed, bug.faults, bug.dimensions)
        except SimulationFailure as failure:
            run_cleanly(seed, bug.faults, bug.dimensions)
            return failure.invariant
    return None


@cache
def run_cleanly(seed: int, faults: tuple[Fault, ...], dimensions: tuple[str, ...]) -> None:
    """Once for all bugs that are caught by the same run."""
    run_seed(seed, faults, dimensions)


def test_a_failing_seed_is_shrunk_written_down_and_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with planted(BUGS[0]):
        assert main(["--seeds", "1", "--jobs", "1", "--bundles", str(tmp_path)]) == 1
        bundle = tmp_path / "simulation-0.json"
        assert main(["--replay", str(bundle)]) == 1
    assert Bundle.from_json(bundle.read_text(encoding="utf-8")).faults == ()  # it needs none
    told = capsys.readouterr().out
    assert "python -m ottla.testing.simulation.run --seed 0" in told
    assert "only committed records are acknowledged" in told


def test_a_hunt_tells_which_drawn_seed_catches_a_bug_first() -> None:
    assert hunt(BUGS[0].name, 1) == Caught(BUGS[0].name, 0, "only committed records are acknowledged")
    assert hunt("leave the recovery point above a cut", 1).seed == -1
