"""Faults that meet those who matter just then, one upon another (chained.py): a leader that is cut off goes on writing what nobody
takes, comes back and cuts it, and leads again; the controller's answers come late; followers leave and join.

Leaders are as hasty as in runs of `hasty` where a chain needs it, and in half of the others: it is between a leader's patience and a
session that most of them matter.

One run in six of these is about a recovery point: a topic of its own is synced every few records and has segments of three batches,
so that what a split leader wrote in vain is on stable storage, and what comes in its place is in several files.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import CHAINS, HASTY, KINDS_OF_CHAINS, PLACES, cut_below_a_sync
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.dimensions.hasty import Hasty
from ottla.testing.simulation.pipelined import PipelinedProducer
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.workload import SMALL_SEGMENTS, History

SYNCED = "synced"
SYNCED_ONE_IN = 6
SYNCED_SETTINGS = {**SMALL_SEGMENTS, "flush_messages": "4", "segment_index_bytes": "36"}
WRITERS, INTERVAL_S, PADDING = 3, 0.04, 3000


class Chains(Dimension):
    name = "chains"
    one_in = 2

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._chain = rng.choice(CHAINS)
        hasty = self._chain in HASTY or rng.randrange(2)
        self.settings: Mapping[str, str] = Hasty.settings if hasty else {}
        self.calm = rng.randrange(3) > 0
        beside = Random()
        beside.setstate(rng.getstate())  # what it draws changes nothing in the runs that are not about a recovery point
        self._synced = not beside.randrange(SYNCED_ONE_IN)
        if self._synced:
            self.settings, self.calm = {}, True

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        rng, begin_ms = self.rng, self.rng.randrange(300)
        if self._synced:
            return cut_below_a_sync(rng, begin_ms, SYNCED, 0)
        faults = self._chain(rng, begin_ms, *rng.choice(PLACES))
        return [fault for fault in faults if fault.time_ms + fault.duration_ms <= until_ms]

    def kinds(self) -> Mapping[str, FaultKind]:
        return KINDS_OF_CHAINS

    async def prepare(self) -> None:
        for writer in range(WRITERS if self._synced else 0):
            history = History(SYNCED, 0, writer=writer, padding=PADDING)
            self.run.add_producer(PipelinedProducer(self.run.client(), history, INTERVAL_S))
        if self._synced:
            await self.run.create_topic(SYNCED, 1, **SYNCED_SETTINGS)


DIMENSION = Chains
