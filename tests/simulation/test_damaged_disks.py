"""The whole cluster while bits of one machine's logs flip: no wrong record, no lost one, and equal replicas in the end."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from ottla.broker.replication.partition import Partition
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.course import NODES
from ottla.testing.simulation.dimensions.rot import ROT, draw_rot
from ottla.testing.simulation.scenario import FAULTS_UNTIL_MS, SimulationFailure, faults_of, run_seed
from ottla.testing.simulation.violations import InvariantViolation

SEEDS = range(16)
HAVING = ("compaction", ROT, "topics")
NAMES = [f"node-{number}" for number in range(1, NODES + 1)]


def faults(seed: int) -> list[Fault]:
    """Two to five rotten bits; every other run has the weather of its seed as well."""
    rng = Random(f"{seed}/rotten")
    rotten = [draw_rot(rng, NAMES, FAULTS_UNTIL_MS) for _ in range(rng.randint(2, 5))]
    return [*faults_of(seed, HAVING), *rotten] if seed % 2 else rotten


def test_rotten_bits_cost_nothing_while_two_replicas_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    _count(monkeypatch, counts, "damaged")
    _count(monkeypatch, counts, "_cut")
    for seed in SEEDS:
        run_seed(seed, faults(seed), HAVING)
    assert counts["damaged"] >= 3, "most bits lie in what a start reads anyway, but not all"
    assert counts["_cut"] >= 2


def _count(monkeypatch: pytest.MonkeyPatch, counts: Counter[str], name: str) -> None:
    method = getattr(Partition, name)

    def counted(self: Partition, *args: Any) -> Any:
        counts[name] += 1
        return method(self, *args)

    monkeypatch.setattr(Partition, name, counted)


def test_a_replica_that_cuts_before_it_left_the_isr_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken away: it is cut as soon as it is known to be damaged."""
    damaged = Partition.damaged

    def cut_at_once(self: Partition, offset: int) -> bool:
        known = damaged(self, offset)
        if self.is_damaged:
            self._cut()
        return known

    monkeypatch.setattr(Partition, "damaged", cut_at_once)
    found: list[InvariantViolation | BaseException] = []
    for seed in SEEDS:
        try:
            run_seed(seed, faults(seed), HAVING)
        except SimulationFailure as failure:
            found.append(failure.error)
            break
    assert found
