"""Two topics of keyed records and tombstones in small batches, which are compacted all the while; one forgets its oldest too.

In every other run somebody reads them meanwhile.
"""

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from ottla.testing.simulation.consumers import Consumer, Leaders
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.workload import SMALL_SEGMENTS, History

COMPACTED, FORGETFUL = "prices", "quotes"
KEYS = 5


class Compaction(Dimension):
    name = "compaction"
    one_in = 2
    _leaders: Leaders
    _consumer: Consumer

    async def prepare(self) -> None:
        settings = {"min_cleanable_dirty_ratio": "0.01", **SMALL_SEGMENTS}
        await self.run.create_topic(COMPACTED, 1, cleanup_policy="compact", **settings)
        await self.run.create_topic(FORGETFUL, 1, cleanup_policy="compact,delete", retention_bytes="2000", **settings)
        self.run.produce(History(COMPACTED, 0, KEYS), 0.08, 3)
        self.run.produce(History(FORGETFUL, 0, KEYS, oldest_go=True), 0.09, 2)
        self._leaders = Leaders(self.run.client(), {COMPACTED: 1, FORGETFUL: 1})
        self._consumer = Consumer(
            self.run.client,
            self.run.invariants,
            self._leaders,
            [(COMPACTED, 0), (FORGETFUL, 0)],
            with_session=True,
            oldest_go=[FORGETFUL],
        )

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        if self.rng.randrange(2):
            yield self._leaders.run()
            yield from self._consumer.tasks(self.run.cluster.brokers)

    def counts(self) -> Mapping[str, int]:
        return {"of compacted topics read": sum(map(len, self._consumer.numbers.values()))}


DIMENSION = Compaction
