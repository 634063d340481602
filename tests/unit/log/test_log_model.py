"""Random histories of a log against a plain list: append, read, cut, roll, forget, compact, stop, kill, power cuts anywhere.

30,000 steps are taken by a driver of our own, about 6 s of CPU, a million by `make test-deep`;
hypothesis draws some more, and says what it shrank them to.
"""

import os
from collections.abc import Mapping
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.names import TopicIdPartition
from ottla.testing.log.machine import COMPACTING, DELETING, Machine
from ottla.testing.log.run import HistoryFailure, main, run_history, run_many, run_steps, steps_of

STEPS = int(os.environ.get("OTTLA_MODEL_STEPS", "30000"))
DRAWN_HISTORIES, DRAWN_STEPS = 30, 100


def test_a_log_is_the_list_of_what_was_appended() -> None:
    taken = run_many(STEPS)
    assert taken.total() >= STEPS
    every = {action.__name__ for action in (*DELETING, *COMPACTING)}
    assert {name for name, count in taken.items() if count > STEPS // 100} == every


@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 30_000)), min_size=DRAWN_STEPS, max_size=DRAWN_STEPS
    ),
)
@settings(
    max_examples=DRAWN_HISTORIES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
def test_a_log_is_the_list_of_what_was_appended_whatever_hypothesis_draws(
    seed: int, steps: list[tuple[int, int]]
) -> None:
    actions = COMPACTING if seed % 2 else DELETING
    run_steps(seed, [(actions[action % len(actions)], number) for action, number in steps])


@pytest.mark.parametrize("seed", [6, 7])
def test_a_history_goes_the_same_way_each_time(seed: int) -> None:
    ends = []
    for _ in range(2):
        machine = run_steps(seed, steps_of(seed))
        ends.append((machine.log.log_end_offset, machine.platter.operations))
    assert ends[0] == ends[1]


def _forget_in_memory_only(self: CleanedOffsets, root: str, ends: Mapping[TopicIdPartition, int]) -> None:
    for key in ends:
        for file in self._files:
            file._tables[root].pop(key, None)


def test_a_failing_history_is_shrunk_and_names_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(CleanedOffsets, "forget", _forget_in_memory_only):
        with pytest.raises(HistoryFailure) as caught:
            run_many(30_000, first=1)
        failure = caught.value
        assert len(failure.steps) < 12
        assert f"--seed {failure.seed}" in str(failure)
        assert main(["--seed", str(failure.seed)]) == 1
        assert "ahead of what is clean" in capsys.readouterr().out
    assert run_history(failure.seed).total() == len(steps_of(failure.seed))
    assert main(["--seed", str(failure.seed)]) == 0


def test_the_machine_notices_a_record_that_is_missing() -> None:
    machine = Machine(1, compacted=False)
    machine.append(2)
    machine.check()
    machine.records.append(machine.records[-1]._replace(offset=0))
    with pytest.raises(AssertionError):
        machine.check()
