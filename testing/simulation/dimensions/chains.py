"""Faults that meet those who matter just then, one upon another (chained.py): a leader that is cut off goes on writing what nobody
takes, comes back and cuts it, and leads again; the controller's answers come late; followers leave and join.

Leaders are as hasty as in runs of `hasty` where a chain needs it, and in half of the others: it is between a leader's patience and a
session that most of them matter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from ottla.runtime.simulation.faults import KINDS, Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.chained import CHAINS, HASTY, PLACES, SPLIT
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.dimensions.hasty import Hasty
from ottla.testing.simulation.plan import FaultKind


def split(loop: SimulationLoop, name: str) -> Callable[[], None]:
    """A node is cut off from the other nodes while clients still reach it: it goes on as the leader it was."""
    others = [each for each in loop.nodes if each.startswith("node-") and each != name]
    ends = [KINDS["cut"](loop, *way) for other in others for way in ((name, other), (other, name))]

    def end() -> None:
        for each in ends:
            each()

    return end


class Chains(Dimension):
    name = "chains"
    one_in = 2

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._chain = rng.choice(CHAINS)
        hasty = self._chain in HASTY or rng.randrange(2)
        self.settings: Mapping[str, str] = Hasty.settings if hasty else {}
        self.calm = rng.randrange(3) > 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        rng = self.rng
        faults = self._chain(rng, rng.randrange(300), *rng.choice(PLACES))
        return [fault for fault in faults if fault.time_ms + fault.duration_ms <= until_ms]

    def kinds(self) -> Mapping[str, FaultKind]:
        return {SPLIT: FaultKind(split)}


DIMENSION = Chains
