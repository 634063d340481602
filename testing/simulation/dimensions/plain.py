"""A broker that is no controller. Its metadata directory is wiped once: a voter's memory is not its own to lose."""

from collections.abc import Iterable, Sequence

from ottla.broker.directories import METADATA_DIRECTORY
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.cluster import DATA
from ottla.testing.simulation.dimension import Dimension


class PlainBroker(Dimension):
    name = "plain"
    plain_brokers = 1

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        duration_ms = self.rng.randint(1, 1500)
        time_ms = self.rng.randint(0, until_ms - duration_ms)
        return [Fault(time_ms, "wipe", (nodes[-1], f"{DATA}/{METADATA_DIRECTORY}"), duration_ms)]


DIMENSION = PlainBroker
