"""The scenarios in ``scenarios/``: text files with commands and what the cores answer.

``OTTLA_REWRITE=1 pytest tests/unit/quorum/test_raft_scenarios.py`` writes the answers anew: commit only changes you understand.
"""

import os
from pathlib import Path

import pytest

from ottla.testing.raft.scenario import check_scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_is_answered_as_written(path: Path) -> None:
    check_scenario(path, rewrite=bool(os.environ.get("OTTLA_REWRITE")))
