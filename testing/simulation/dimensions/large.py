"""Requests that are large enough to be read, and answered, beside the loop (`network/beside.py`): here most are, followers' fetches too.

What stands behind one on its connection waits for it, what stands on others does not, and who asked may be gone when it is read.
A clerk sends commits of both sizes at once over one connection: the last one counts, whichever is read first.
"""

from collections.abc import Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from ottla.broker.handlers import common, list_offsets
from ottla.broker.handlers.fetching import fetch
from ottla.broker.internal_topics import GROUPS
from ottla.testing.simulation.coordinated import COORDINATORS, Coordinated
from ottla.testing.simulation.course import TOPIC
from ottla.testing.simulation.hasty_clerk import HastyClerk

LEAST_BYTES = (1, 120, 250)
"""From where on a request is large; a commit of the clerk's has some hundred bytes, and what it adds."""
SIZES = (0, 0, 400)
PIECE = 2


class Large(Coordinated):
    name = "large"
    one_in = 6
    settings: Mapping[str, str] = {"offsets.topic.num.partitions": str(COORDINATORS)}
    _clerk: HastyClerk

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.limits = (
            *self.limits,
            (common, "LARGE_BYTES", rng.choice(LEAST_BYTES)),
            (fetch, "LARGE_FETCH_BYTES", rng.choice(LEAST_BYTES)),
            (list_offsets, "PIECE", PIECE),
        )

    async def prepare(self) -> None:
        await self._require(GROUPS)
        rng = Random(self.rng.getrandbits(64))
        self._clerk = HastyClerk(self.run, self.run.client(), TOPIC, COORDINATORS, SIZES, rng)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._clerk.run()

    def progress(self) -> Mapping[str, int]:
        return {"committed at once": self._clerk.checked}

    def counts(self) -> Mapping[str, int]:
        return {"looks at what was committed at once": self._clerk.checked}


DIMENSION = Large
