"""Consumers of assigned partitions that follow what is written: each record once, in order, always the same at its offset."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from ottla.testing.chaos.workloads.clients import Reader
from ottla.testing.chaos.workloads.sequences import Numbers
from ottla.testing.chaos.workloads.workload import Actor, Workload
from ottla.testing.checker import Isolation

READERS = 2
STEPS_MAX = 60
"""Reads until a reader begins anew, somewhere that it has been."""


class Assign(Workload):
    name = "assign"
    description = (
        "consumers by assign, at both isolations, behind an idempotent producer: nothing passed over or changed"
    )

    def actors(self) -> Sequence[Callable[[], Actor]]:
        isolations = list(Isolation)
        readers = [
            partial(Following, self, f"a{number}", isolations[number % len(isolations)]) for number in range(READERS)
        ]
        return [partial(Numbers, self, "p"), *readers]


class Following:
    """Reads on, and now and then again from where it was before."""

    def __init__(
        self, workload: Workload, name: str, isolation: Isolation, topics: Sequence[str] | None = None
    ) -> None:
        """``topics``: all of the workload, unless said."""
        self._workload, self._name, self._isolation = workload, name, isolation
        self._rng: Random = workload.rng(name)
        self._generation = 0
        self._left = STEPS_MAX
        self._places = [(topic, index) for topic in topics or workload.topics for index in range(workload.PARTITIONS)]
        self._reader = self._begin(dict.fromkeys(self._places, 0))

    def _begin(self, positions: dict[tuple[str, int], int]) -> Reader:
        name = f"{self._name}.{self._generation}"
        reader = Reader(name, self._workload.site.bootstrap_servers, self._workload.history, self._isolation)
        reader.assign(positions)
        return reader

    def step(self) -> None:
        self._reader.read(0.1)
        self._left -= 1
        if self._left <= 0 or self._reader.is_lost:
            self._again(0 if self._reader.is_lost else self._rng.random())

    def _again(self, part: float) -> None:
        positions = {place: int(at * part) for place, at in self._reader.positions.items()}
        self._reader.close()
        self._generation += 1
        self._left = self._rng.randrange(1, STEPS_MAX)
        self._reader = self._begin(positions)

    def close(self) -> None:
        self._reader.close()
