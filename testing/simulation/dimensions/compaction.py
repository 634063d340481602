"""Two topics of keyed records and tombstones in small batches, which are compacted all the while; one forgets its oldest too."""

from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.workload import SMALL_SEGMENTS, History

COMPACTED, FORGETFUL = "prices", "quotes"
KEYS = 5


class Compaction(Dimension):
    name = "compaction"
    one_in = 2

    async def prepare(self) -> None:
        settings = {"min_cleanable_dirty_ratio": "0.01", **SMALL_SEGMENTS}
        await self.run.create_topic(COMPACTED, 1, cleanup_policy="compact", **settings)
        await self.run.create_topic(FORGETFUL, 1, cleanup_policy="compact,delete", retention_bytes="2000", **settings)
        self.run.produce(History(COMPACTED, 0, KEYS), 0.08, 3)
        self.run.produce(History(FORGETFUL, 0, KEYS, oldest_go=True), 0.09, 2)


DIMENSION = Compaction
