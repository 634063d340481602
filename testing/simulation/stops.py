"""Nodes that are stopped as they should be, as a fault."""

from collections.abc import Callable
from functools import partial

from ottla.runtime.simulation.faults import repair
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.plan import FaultKind

STOP = "stop-in-order"


def stopping(cluster: SimulatedCluster) -> dict[str, FaultKind]:
    """The kind of it."""
    return {STOP: FaultKind(partial(_stop, cluster), stops=True)}


def _stop(cluster: SimulatedCluster, loop: SimulationLoop, name: str) -> Callable[[], None]:
    """A start at the end; kill -9 for one that is not through with stopping by then."""
    cluster.stop(loop.nodes[name])
    return lambda: repair(loop, name, loop.nodes[name].kill)
