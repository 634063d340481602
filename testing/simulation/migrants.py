"""Consumers whose processes speak one protocol of groups and then the other: a group that is upgraded while it works, or goes back.

What holds in either: nobody is given a partition that another reads. Generations are no measure here, for a group that goes back begins
below epochs that members had.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Protocol

from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequestAssignment
from ottla.testing.simulation.client import Client
from ottla.testing.simulation.consumer_members import CONSUMER_SESSION_MS, ConsumerMember
from ottla.testing.simulation.cooperative_members import CooperativeMember
from ottla.testing.simulation.group_members import LIVES_S, GroupMember
from ottla.testing.simulation.groups import Group

VERSION = 1
CHANGES_SHARE = 0.6
"""Of the processes that end: the next one speaks the other protocol."""


class MixedGroup(Group):
    """Of both protocols, in turn or at once."""

    def note_owner(self, member: str, generation: int, partitions: list[int]) -> None:
        self.assignments += 1

    def note_held(self, member: str, generation: int, partitions: Iterable[int]) -> None:
        """What is read counts, as `note_reading` hears of it."""

    def note_handed_over(self, member: str, generation: int, partitions: list[int]) -> None:
        """`note_given` knows more."""


class _Legible(GroupMember):
    """A classic member that tells and is told assignments as a coordinator can read them, and what it reads."""

    _asked_s = 0.0

    def _told(self, shares: Mapping[str, list[int]]) -> list[SyncGroupRequestAssignment]:
        topic = self._group.topic
        found = {
            name: ConsumerProtocolAssignment([TopicPartition(topic, share)] if share else [])
            for name, share in shares.items()
        }
        return [
            SyncGroupRequestAssignment(
                name, VERSION.to_bytes(2) + b"".join(encoder(ConsumerProtocolAssignment, VERSION)(each))
            )
            for name, each in found.items()
        ]

    def _mine(self, assignment: bytes) -> list[int]:
        if not assignment:
            return []
        version = int.from_bytes(assignment[:2])
        told, _ = decoder(ConsumerProtocolAssignment, version)(memoryview(assignment), 2)
        return sorted(index for each in told.assigned_partitions for index in each.partitions)

    async def _be_assigned(self) -> tuple[int, list[int]]:
        self._asked_s = asyncio.get_running_loop().time()
        return await super()._be_assigned()

    async def _take(self, generation: int, owned: list[int]) -> None:
        added = [each for each in owned if each not in self.positions]
        self._group.note_given(self._id, added, CONSUMER_SESSION_MS / 1000)
        await super()._take(generation, owned)
        self._group.note_reading(self._id, self.positions, self._asked_s)

    async def _be_heard(self) -> None:
        asked_s = asyncio.get_running_loop().time()
        await super()._be_heard()
        self._group.note_reading(self._id, self.positions, asked_s)

    async def _leave(self) -> None:
        self._group.note_released(self._id)  # before it says so: another may have all of it before the answer comes
        await super()._leave()

    def _forget(self) -> None:
        self._group.note_released(self._id)
        super()._forget()


class EagerMigrant(_Legible):
    """Stops reading before each rebalance."""


class CooperativeMigrant(_Legible, CooperativeMember):
    """Reads on."""


class Process(Protocol):
    """Makes a member."""

    def __call__(
        self, client: Callable[[], Client], group: Group, rng: Random, instance_id: str | None, share: float
    ) -> GroupMember: ...


class Migrant:
    """One process after another; ``last``: what it is in the end, whether it speaks the newer protocol then."""

    def __init__(
        self,
        client: Callable[[], Client],
        group: Group,
        rng: Random,
        classic: Process,
        *,
        instance_id: str | None,
        expression: str | None,
        last: bool,
        share: float,
    ) -> None:
        self.changes = 0
        self._rng, self._share, self._last = rng, share, last
        newer = ConsumerMember(client, group, Random(rng.getrandbits(64)), instance_id, share)
        newer.expression = expression
        older = classic(client, group, Random(rng.getrandbits(64)), instance_id, share)
        self._kinds = {False: older, True: newer}
        self._is_newer = bool(rng.randrange(2))

    @property
    def member(self) -> GroupMember:
        """Its process of now."""
        return self._kinds[self._is_newer]

    async def run(self, restless_s: float) -> None:
        """Until cancelled; after ``restless_s`` it stays what it is to be."""
        loop = asyncio.get_running_loop()
        rest_s = loop.time() + restless_s
        while loop.time() < rest_s:
            lives_s = min(self._share * self._rng.uniform(*LIVES_S), rest_s - loop.time())
            ends = await self.member.live_for(lives_s)
            if ends and self._rng.random() < CHANGES_SHARE:
                self._change()
        if self._is_newer is not self._last:
            await self.member.depart()
            self._change()
        await self.member.live_for(None)

    def _change(self) -> None:
        self._is_newer = not self._is_newer
        self.changes += 1
