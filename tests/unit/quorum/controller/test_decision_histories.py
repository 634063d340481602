"""Random histories of the controller's decisions against a model of logs, and bugs that they must catch.

Eighty histories take about 4 s of CPU; `python -m ottla.testing.decisions.run --seeds 10000` has more.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions import alter_partition, cluster, configs, partition_change
from ottla.quorum.controller.decisions.replica_index import ReplicaIndex
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import Step, Sweep
from ottla.quorum.metadata.views import BrokerView, PartitionView
from ottla.runtime.errors import ErrorCode
from ottla.testing.decisions.history import STEPS, HistoryFailure, run_history
from ottla.testing.decisions.run import main, run_many
from ottla.testing.decisions.steps import PROFILES

SEEDS = 80
_Asked = rpc.AlterPartitionRequest.Partition
_REFUSAL = alter_partition._refusal


def _takes_what_is_late(state: Any, sender: int, partition: PartitionView, asked: _Asked) -> ErrorCode | None:
    newer = _Asked.FromString(asked.SerializeToString())
    newer.partition_epoch = max(asked.partition_epoch, partition.partition_epoch)
    return _REFUSAL(state, sender, partition, newer)


def _of_that_epoch(request: rpc.RegisterBrokerRequest, known: BrokerView) -> bool:
    return request.previous_broker_epoch == known.epoch


BUGS: tuple[tuple[str, Any, str, Callable[..., Any], int], ...] = (
    ("min.insync.replicas leaves who is eligible", configs, "_check_min_in_sync", lambda *_: [], 16),
    ("who is eligible stays though enough are in sync", partition_change, "eligible", lambda those, *_: those, 0),
    ("who led last is forgotten", partition_change, "last_known", lambda *_: (), 0),
    ("a directory that fails leaves its replicas in sync", cluster, "lose_directories", lambda *_: Step([], True), 0),
    ("who comes back uncleanly stays in sync", cluster, "write_off", lambda *_: Step([], True), 0),
    ("who is spared leads nothing any more", ControllerState, "spare", lambda *_: None, 1),
    ("who is unfenced gets nothing back", ControllerState, "_returns", lambda *_: None, 1),
    ("a sweep forgets what changes under it", Sweep, "changed", lambda *_: True, 26),
    ("what a leader asked long ago is done", alter_partition, "_refusal", _takes_what_is_late, 64),
    ("who left a directory out stopped in order", cluster, "_stopped_in_order", _of_that_epoch, 421),
    ("who is taken out is elected", ControllerState, "is_staying", lambda *_: True, 1),
    ("the index of replicas stands still", ReplicaIndex, "update", lambda *_: None, 0),
)
"""A rule that is taken away, and the first history that noticed: others may when what is drawn has changed."""


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


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "seed"), [each[1:] for each in BUGS], ids=[each[0] for each in BUGS]
)
def test_a_planted_bug_is_caught(owner: Any, name: str, mutant: Callable[..., Any], seed: int) -> None:
    with patch.object(owner, name, mutant), pytest.raises(HistoryFailure):
        run_history(seed)
