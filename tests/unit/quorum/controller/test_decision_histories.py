"""Random histories of the controller's decisions against a model of logs, and bugs that they must catch.

Eighty histories take about 4 s of CPU; `python -m ottla.testing.decisions.run --seeds 10000` has more.
"""

import pytest

from ottla.testing.decisions.history import STEPS, run_history
from ottla.testing.decisions.run import main, run_many
from ottla.testing.decisions.steps import PROFILES

SEEDS = 80


def test_no_history_loses_what_is_committed_or_leaves_a_partition_behind() -> None:
    outcomes, failures = run_many(range(SEEDS))
    assert not failures, "\n".join(map(str, failures))
    assert {each.plan.profile for each in outcomes} == set(PROFILES)
    assert {each.plan.keeps_eligible for each in outcomes} == {True, False}
    assert {each.plan.pieces for each in outcomes} == {1, 2, 250}


def test_histories_come_to_something() -> None:
    outcomes, _ = run_many(range(5))
    assert all(each.records > STEPS // 10 and each.committed > 0 for each in outcomes)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    assert run_history(seed) == run_history(seed)


def test_one_history_is_told_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "everybody comes back" in lines
    assert run_history(1).digest in lines[-1]
