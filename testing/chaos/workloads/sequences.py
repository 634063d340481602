"""Streams of numbered records, many under way at once: retries neither double nor reorder nor lose any."""

from collections.abc import Callable, Sequence
from functools import partial

from ottla.testing.chaos.workloads.clients import Stream
from ottla.testing.chaos.workloads.workload import Actor, Workload

PRODUCERS = 3
PAUSE_S = (0.02, 0.12)
BURST_MAX = 5


class Sequences(Workload):
    name = "sequences"
    description = (
        "idempotent producers of numbered records, several of each under way: none lost, doubled, out of order"
    )

    def actors(self) -> Sequence[Callable[[], Actor]]:
        return [partial(Numbers, self, f"p{number}") for number in range(PRODUCERS)]


class Numbers:
    """To all partitions, in bursts."""

    def __init__(self, workload: Workload, name: str, topics: Sequence[str] | None = None) -> None:
        """``topics``: all of the workload, unless said."""
        self._places = [(topic, index) for topic in topics or workload.topics for index in range(workload.PARTITIONS)]
        self._rng = workload.rng(name)
        self._stream = Stream(name, workload.site.bootstrap_servers, workload.history)

    def step(self) -> None:
        for _ in range(self._rng.randrange(1, BURST_MAX + 1)):
            self._stream.send(*self._rng.choice(self._places))
        self._stream.poll(self._rng.uniform(*PAUSE_S))

    def close(self) -> None:
        self._stream.close()
