"""Idempotent producers with five batches in flight, several to one partition: after a failure all are sent again in their order.

In some runs their batches are larger than a page of the disk, so that a power cut tears them in the middle. In some the log is
synced every few records, so that what a split leader wrote in vain is on stable storage.
"""

from collections.abc import Mapping

from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.pipelined import PipelinedProducer
from ottla.testing.simulation.workload import SMALL_SEGMENTS, History

ARRIVALS = "arrivals"
PRODUCERS = 3
INTERVAL_S = 0.04
PADDINGS = (0, 0, 0, 3000)
SYNCS = ("", "", "4")


class Pipelines(Dimension):
    name = "pipelines"
    one_in = 2

    _histories: list[History]

    async def prepare(self) -> None:
        padding = self.rng.choice(PADDINGS)
        self._histories = [History(ARRIVALS, 0, writer=number, padding=padding) for number in range(PRODUCERS)]
        for history in self._histories:
            interval_s = INTERVAL_S * self.rng.choice((1, 2, 4))
            batch = self.rng.choice((1, 1, 2))
            self.run.add_producer(PipelinedProducer(self.run.client(), history, interval_s, batch))
        syncs = self.rng.choice(SYNCS)
        await self.run.create_topic(ARRIVALS, 1, **SMALL_SEGMENTS, **({"flush_messages": syncs} if syncs else {}))

    def counts(self) -> Mapping[str, int]:
        return {
            "acknowledged of pipelines": sum(len(history.acknowledged) for history in self._histories),
            "given up": sum(len(history.given_up) for history in self._histories),
        }


DIMENSION = Pipelines
