"""Names used again: topics are deleted and made anew under load, and changed meanwhile; records are deleted at any offset.

Now and then all nodes die in the same moment, so that what everybody has on disk is all there is; and what is written about logs now and
then is written more often, or seldom.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from random import Random
from typing import Any

from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.incarnations import IncarnationUser
from ottla.testing.simulation.workload import BrokenPromise

NAMES = ("again", "anew")
CHECKPOINT_MS = (150, 600, 1_000, 2_000)
DEATHS = (1, 2, 3)
FIRST_MS, BETWEEN_MS = (800, 2_000), (1_600, 2_600)
"""Long enough for the cluster to come back, and for names to be used again."""
READ_BACK_S = 5.0


class Names(Dimension):
    name = "names"
    one_in = 5
    least_ms = 4_000
    _users: Sequence[IncarnationUser] = ()

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.settings = {"log.flush.offset.checkpoint.interval.ms": str(rng.choice(CHECKPOINT_MS))}

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        time_ms = self.rng.randint(*FIRST_MS)
        for _ in range(self.rng.choice(DEATHS)):
            duration_ms = self.rng.randint(10, 200)
            if time_ms + duration_ms < until_ms:
                yield from (Fault(time_ms, "kill", (node,), duration_ms) for node in nodes)
            time_ms += self.rng.randint(*BETWEEN_MS)

    async def prepare(self) -> None:
        run = self.run
        self._users = [
            IncarnationUser(
                run.client(), lambda: run.invariants.metadata, Random(self.rng.random()), run.cluster.brokers, name
            )
            for name in NAMES
        ]

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [user.run() for user in self._users]

    def progress(self) -> dict[str, int]:
        return {f"topics of the name {name}": user.rounds for name, user in zip(NAMES, self._users, strict=True)}

    async def check(self) -> None:
        for user in self._users:
            if user.current is None:
                continue
            try:
                async with asyncio.timeout(READ_BACK_S):
                    await user.read_back(user.current)
            except TimeoutError as error:
                raise BrokenPromise(f"{user.current}: what was acknowledged cannot be read") from error

    def counts(self) -> dict[str, int]:
        return {
            "names used again": sum(user.rounds for user in self._users),
            "records deleted": sum(user.deleted_records for user in self._users),
            "read back": sum(user.read for user in self._users),
        }


DIMENSION = Names
