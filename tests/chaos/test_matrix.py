"""A few cells of the chaos matrix, others every day. `make chaos` runs all; `python -m ottla.testing.chaos.run` one."""

from pathlib import Path

import pytest

from ottla.testing.chaos.matrix import complaints, play
from ottla.testing.chaos.plan import Plan, rotating
from ottla.testing.chaos.workloads import WORKLOADS
from tests.chaos.conftest import SEED, SERVER

COUNT = 4


@pytest.mark.parametrize(
    "plan", rotating(list(WORKLOADS), SEED, COUNT), ids=lambda plan: f"{plan.fault}-seed-{plan.seed}"
)
def test_everything_acknowledged_survives(plan: Plan, tmp_path: Path) -> None:
    result = play(plan, tmp_path, SERVER)
    assert result.is_well, "\n".join(complaints(result))
