"""What a seed means: how long a fault lasts, on which shape, and what else is drawn."""

import hashlib
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ottla.testing.chaos.fault import Fault
from ottla.testing.chaos.table import BY_NAME, FAULTS


class Plan(NamedTuple):
    """A run: one fault, some workloads, and the seed that everything else is drawn from."""

    fault: str
    workloads: tuple[str, ...]
    seed: int

    @property
    def shape(self) -> str:
        return self.rng("shape").choice(self.what.shapes)

    @property
    def seconds(self) -> float:
        return round(self.rng("seconds").uniform(*self.what.seconds), 1)

    @property
    def what(self) -> Fault:
        return BY_NAME[self.fault]

    def rng(self, purpose: str) -> Random:
        """One for each purpose, so that what is drawn for one does not change with another."""
        text = f"{self.fault}/{self.seed}/{purpose}"
        return Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))

    @property
    def command(self) -> str:
        """Replays it."""
        workloads = ",".join(self.workloads)
        return f"python -m ottla.testing.chaos.run --fault {self.fault} --workloads {workloads} --seed {self.seed}"


def whole(workloads: Sequence[str], seed: int) -> list[Plan]:
    """Every fault meets every workload."""
    return [Plan(fault.name, tuple(suited(fault, workloads)), seed) for fault in FAULTS]


def suited(fault: Fault, workloads: Sequence[str]) -> list[str]:
    """Those of them that go with the fault."""
    return [each for each in workloads if each in fault.workloads] if fault.workloads else list(workloads)


def rotating(workloads: Sequence[str], seed: int, count: int) -> list[Plan]:
    """Some faults, no two of a family before each had one, each with some workloads: another seed has others."""
    rng = Random(seed)
    families: dict[str, list[Fault]] = {}
    for fault in rng.sample(FAULTS, len(FAULTS)):
        families.setdefault(fault.family, []).append(fault)
    turns = sorted(families, key=lambda _: rng.random())
    plans = []
    for at in range(count):
        family = families[turns[at % len(turns)]]
        fault = family[at // len(turns) % len(family)]
        able = suited(fault, workloads)
        plans.append(Plan(fault.name, tuple(rng.sample(able, min(len(able), 3))), seed))
    return plans
