"""A broker that is no controller. Its metadata directory is wiped once: a voter's memory is not its own to lose. In half of the runs its
machine is also replaced by one that has nothing but the node's id.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from ottla.broker.directories import METADATA_DIRECTORY
from ottla.runtime.simulation.faults import KINDS, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.cluster import DATA
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.new_disks import renew
from ottla.testing.simulation.plan import FaultKind

IS_NEW = "machine-is-new"


class PlainBroker(Dimension):
    name = "plain"
    plain_brokers = 1

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.replaced = 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        duration_ms = self.rng.randint(1, 1500)
        time_ms = self.rng.randint(0, until_ms - duration_ms)
        yield Fault(time_ms, "wipe", (nodes[-1], f"{DATA}/{METADATA_DIRECTORY}"), duration_ms)
        if self.rng.randrange(2):
            duration_ms = self.rng.randint(1, 2500)
            yield Fault(self.rng.randint(0, until_ms - duration_ms), IS_NEW, (nodes[-1],), duration_ms)

    def kinds(self) -> Mapping[str, FaultKind]:
        return {IS_NEW: FaultKind(self._is_new, stops=True, loses=True, empties=True)}

    def _is_new(self, loop: SimulationLoop, name: str) -> Callable[[], None]:
        """kill -9, and a restart at the end with every directory empty."""
        start, platter, cluster = KINDS["kill"](loop, name), loop.nodes[name].platter, self.run.cluster
        self.replaced += 1
        self.run.invariants.metadata_wiped(cluster.number_of(loop.nodes[name]))
        with platter.sound():
            for path in cluster.directories:
                renew(platter, path, path, self.rng)
        return start

    def counts(self) -> Mapping[str, int]:
        return {"machines replaced": self.replaced}


DIMENSION = PlainBroker
