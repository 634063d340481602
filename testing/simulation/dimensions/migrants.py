"""A group whose consumers change from one protocol to the other, one after another and back, while its coordinator goes: static members,
and such as subscribe by an expression, are among them."""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ottla.broker.coordinator.placement import partition_of
from ottla.testing.simulation.coordinated import COORDINATORS, RESTLESS_S, ReadingGroup
from ottla.testing.simulation.dimensions.groups import MEMBERS, PARTITIONS
from ottla.testing.simulation.group_members import GroupMember
from ottla.testing.simulation.migrants import CooperativeMigrant, EagerMigrant, Migrant, MixedGroup
from ottla.testing.simulation.workload import History

TOPIC, EXPRESSION = "transfers", "tran.*s"
NAME = "ground"
PLACE = partition_of(NAME, COORDINATORS)
ONE_IN_FEW = 3


class Migrants(ReadingGroup):
    name = "migrants"
    one_in = 5
    place = PLACE
    _group: MixedGroup

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._partitions, self._count = rng.randint(*PARTITIONS), rng.randint(*MEMBERS)
        self._statics = rng.choice((0, 0, 1, self._count))
        classic = rng.choice((EagerMigrant, CooperativeMigrant))
        everybody = bool(rng.randrange(2))
        self._last = [rng.choice((everybody, everybody, not everybody)) for _ in range(self._count)]
        # A static member that rebalances cooperatively and dies between letting go and joining again leaves a partition to nobody, until
        # somebody speaks the newer protocol.
        self._classic = classic if any(self._last) or not self._statics else EagerMigrant
        self._by_expression = [not rng.randrange(ONE_IN_FEW) for _ in range(self._count)]
        self._migrants: list[Migrant] = []

    async def prepare(self) -> None:
        run = self.run
        await self._make_topics(run, TOPIC, self._partitions)
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

    @property
    def _now_members(self) -> Sequence[GroupMember]:
        return [each.member for each in self._migrants]

    def counts(self) -> Mapping[str, int]:
        return {
            "changes of protocol": sum(each.changes for each in self._migrants),
            "read by migrants": sum(self._group.processed),
            "assignments of migrants": self._group.assignments,
            "looks at migrants": self._looks,
        }


DIMENSION = Migrants
