"""A group whose consumers change from one protocol to the other, one after another and back, while its coordinator goes: static members,
and such as subscribe by an expression, are among them."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ottla.broker import internal_topics
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.internal_topics import GROUPS
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import KINDS_OF_CHAINS
from ottla.testing.simulation.consumer_members import SETTINGS
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.dimensions.groups import (
    COORDINATORS,
    FAULTS,
    LOOKS_S,
    MEMBERS,
    PARTITIONS,
    RESTLESS_S,
    make_topic_of_groups,
)
from ottla.testing.simulation.dimensions.ledgers import in_small_segments
from ottla.testing.simulation.migrants import CooperativeMigrant, EagerMigrant, Migrant, MixedGroup
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import leader_of
from ottla.testing.simulation.shards import check_shards, missing_shards
from ottla.testing.simulation.workload import BrokenPromise, History

TOPIC, EXPRESSION = "transfers", "tran.*s"
NAME = "ground"
PLACE = partition_of(NAME, COORDINATORS)
ONE_IN_FEW = 3


class Migrants(Dimension):
    name = "migrants"
    one_in = 5
    settings: Mapping[str, str] = {
        "offsets.topic.num.partitions": str(COORDINATORS),
        "group.initial.rebalance.delay.ms": "150",
        "offsets.retention.check.interval.ms": "300",
        **SETTINGS,
    }
    limits = ((internal_topics, "internal_topic", in_small_segments),)
    least_ms = 6_000
    _group: MixedGroup

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._partitions, self._count = rng.randint(*PARTITIONS), rng.randint(*MEMBERS)
        self._statics = rng.choice((0, 0, 1, self._count))
        # A static member that rebalances cooperatively and dies between letting go and joining again leaves a partition to nobody.
        self._classic = EagerMigrant if self._statics else rng.choice((EagerMigrant, CooperativeMigrant))
        everybody = bool(rng.randrange(2))
        self._last = [rng.choice((everybody, everybody, not everybody)) for _ in range(self._count)]
        self._by_expression = [not rng.randrange(ONE_IN_FEW) for _ in range(self._count)]
        self._migrants: list[Migrant] = []
        self._looks = 0
        self._to_read: dict[int, int] = {}

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """Of its coordinator, whoever that is then."""
        leader = leader_of(GROUPS, PLACE)
        for _ in range(self.rng.randint(0, 2)):
            kind, at_ms = self.rng.choice(FAULTS), self.rng.randrange(600, until_ms - 300)
            yield Fault(at_ms, kind, (leader,), self.rng.randrange(100, min(until_ms - at_ms, 3_500)))

    def kinds(self) -> Mapping[str, FaultKind]:
        return KINDS_OF_CHAINS

    async def prepare(self) -> None:
        run = self.run
        await make_topic_of_groups(run)
        await run.create_topic(TOPIC, self._partitions, **self.length.topics)
        for index in range(self._partitions):
            run.produce(History(TOPIC, index), 0.08 * (index + 1), batch=2)
        self._group = MixedGroup(run, NAME, TOPIC, self._partitions, PLACE)
        for number in range(self._count):
            self._migrants.append(
                Migrant(
                    run.client,
                    self._group,
                    Random(self.rng.getrandbits(64)),
                    self._classic,
                    instance_id=f"seat {number}" if number < self._statics else None,
                    expression=EXPRESSION if self._by_expression[number] else None,
                    last=self._last[number],
                    share=self.length.share,
                )
            )
        await self._migrants[0].member.begin()

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._look()
        for each in self._migrants:
            yield each.run(RESTLESS_S * self.length.share)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(*LOOKS_S))
            self._looks += check_shards(self.run)

    # --- once all has healed ------------------------------------------------------------------------------------------

    def missing(self) -> str:
        return missing_shards(self.run) or self._members_missing() or self._records_missing()

    def _members_missing(self) -> str:
        """All are of one generation, or have come to one epoch, and every partition has its reader."""
        members = [each.member for each in self._migrants]
        generations = {each.generation for each in members}
        owned = sorted(index for each in members for index in each.positions)
        if len(generations) > 1 or -1 in generations or owned != list(range(self._partitions)):
            return f"members are in generations {generations} and read {owned}"
        return ""

    def _records_missing(self) -> str:
        for index, done in enumerate(self._group.processed):
            if done < self._to_read.setdefault(index, self._group.end(index)):
                return f"{done} of {index} were processed, {self._to_read[index]} are there"
        return ""

    def progress(self) -> Mapping[str, int]:
        return {f"processed of {index}": count for index, count in enumerate(self._group.processed)}

    async def check(self) -> None:
        self._looks += check_shards(self.run)
        found = self._group.coordinator()
        assert found is not None
        said = {place.partition: each.offset for place, each in found[1].offsets.of_group(NAME)}
        for index, offset in self._group.committed.items():
            if said.get(index, -1) < offset:
                raise BrokenPromise(f"{NAME}: {offset} of {index} was committed, {said.get(index)} is there")

    def counts(self) -> Mapping[str, int]:
        return {
            "changes of protocol": sum(each.changes for each in self._migrants),
            "read by migrants": sum(self._group.processed),
            "assignments of migrants": self._group.assignments,
            "looks at migrants": self._looks,
        }


DIMENSION = Migrants
