"""Copy jobs that are members of a group (KIP-447), in a cluster whose transaction.version is changed under them.

What `transactions` holds, it holds here: of partitions that change hands while a transaction with their offsets is open.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from ottla.broker.coordinator.placement import partition_of
from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdateFeaturesResponse
from ottla.quorum.controller.decisions.features import TRANSACTION_VERSION
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.consumer_members import SETTINGS
from ottla.testing.simulation.coordinated import COORDINATORS, RESTLESS_S
from ottla.testing.simulation.copiers import NEW, OLD
from ottla.testing.simulation.dimension import beside
from ottla.testing.simulation.dimensions.transactions import Transactions
from ottla.testing.simulation.group_copiers import ClassicSeat, GroupCopier, NewerSeat, Seat
from ottla.testing.simulation.migrants import MixedGroup
from ottla.testing.simulation.workload import RETRY_S

SEATS = (2, 3)
UPGRADE, SAFE_DOWNGRADE = 1, 2
CHANGES_S = (0.5, 2.5)
LASTING = (1, 3)
"""How many times as long as usual a transaction may take: also longer than the group waits for a member that sleeps in one."""


class GroupCopiers(Transactions):
    name = "group_copiers"
    one_in = 7
    in_brief = False
    settings: Mapping[str, str] = {
        **Transactions.settings,
        **SETTINGS,
        "group.initial.rebalance.delay.ms": "150",
    }
    source, target, group, deserter = "parcels", "deliveries", "couriers", "absconder"
    pace = 5

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._lasting = beside(rng).choice(LASTING)
        self._sources = rng.randint(2, 3)
        self._count = rng.randint(*SEATS)
        self._kind = rng.choice((NewerSeat, NewerSeat, ClassicSeat))
        self._levels = rng.choice(((), (), (0,), (1,), (0, 2), (1, 0, 2)))
        self._seats: list[Seat] = []
        self._changed = 0

    def _hire(self, source: int) -> None:
        """All at once: which partitions are whose is the group's business."""
        if source:
            return
        run, rng = self.run, self.rng
        group = MixedGroup(run, self.group, self.source, self._sources, partition_of(self.group, COORDINATORS))
        for number in range(self._count):
            versions, keeps_id = rng.choice((OLD, NEW)), bool(rng.randrange(2))
            job, mine = self._job(f"courier {number}", 0), Random(rng.getrandbits(64))
            share = self.length.share
            copier = GroupCopier(
                run, self._copies, job, versions, mine, share=share, keeps_id=keeps_id, lasting=self._lasting
            )
            member = self._kind(run.client, group, Random(rng.getrandbits(64)), None, share)
            self._seats.append(Seat(member, copier, self._copies, run))
            self._copiers.append(copier)

    def _work(self) -> Iterable[Coroutine[Any, Any, None]]:
        for seat in self._seats:
            yield seat.run(RESTLESS_S * self.length.share)
        yield self._change_levels()

    async def _change_levels(self) -> None:
        """An administrator takes the cluster's transaction.version down, and up again."""
        client, before = self.run.client(), NEW_CLUSTER
        for level in self._levels:
            await asyncio.sleep(self.rng.uniform(*CHANGES_S))
            await self._set_level(client, level, SAFE_DOWNGRADE if level < before else UPGRADE)
            before, self._changed = level, self._changed + 1

    async def _set_level(self, client: Client, level: int, kind: int) -> None:
        update = FeatureUpdateKey(TRANSACTION_VERSION, level, upgrade_type=kind)
        while self.run.invariants.metadata.features.get(TRANSACTION_VERSION, 0) != level:
            with contextlib.suppress(Unreachable):
                await client.ask_any(UpdateFeaturesRequest(1_000, [update]), UpdateFeaturesResponse)
            await asyncio.sleep(RETRY_S)

    def progress(self) -> Mapping[str, int]:
        return {f"couriers copied of {source}": done for source, done in enumerate(self._copies.committed)}

    def counts(self) -> Mapping[str, int]:
        attempts = self._copies.attempts
        return {
            "transactions of couriers": len(attempts),
            "committed by couriers": sum(each.told is True for each in attempts),
            "couriers fenced": sum(each.fenced for each in self._copiers),
            "changes of transaction.version": self._changed,
        }


NEW_CLUSTER = 2
"""The level of one that was just formatted."""

DIMENSION = GroupCopiers
