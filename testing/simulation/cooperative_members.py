"""A classic member that keeps what it need not give away (KIP-429): it reads on while the group rebalances.

A partition that is to move is nobody's for one generation: who had it lets it go, and joins again; then it is handed over.
"""

import asyncio

from ottla.broker.wire.codec import decoder
from ottla.broker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from ottla.broker.wire.messages.join_group_response import JoinGroupResponseMember
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequestAssignment
from ottla.testing.simulation.group_members import POLL_S, GroupMember, subscription

VERSION = 2
"""The first subscription that tells the generation in which its partitions were assigned."""


class CooperativeMember(GroupMember):
    """What it reads it has from the last generation that it was told of."""

    protocol = "cooperative-sticky"
    _owned_in = -1

    def _fall_out(self, *, is_known: bool) -> None:
        """Of a rebalance it hears while it reads on; who is no member any more has lost everything."""
        if is_known:
            self.generation = -1
        else:
            self._forget()

    def _subscription(self) -> bytes:
        topic, owned = self._group.topic, [*self.positions]
        told = ConsumerProtocolSubscription(
            [topic], owned_partitions=[TopicPartition(topic, owned)] if owned else [], generation_id=self._owned_in
        )
        return subscription(told, VERSION)

    async def _be_assigned(self) -> tuple[int, list[int]]:
        reading = asyncio.ensure_future(self._read_on())
        try:
            return await super()._be_assigned()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_on(self) -> None:
        while True:
            before = dict(self.positions)
            await self._read()
            self._group.read_meanwhile += self.positions != before
            await asyncio.sleep(self._rng.uniform(*POLL_S))

    def _forget(self) -> None:
        self._group.note_held(self._id, -1, ())
        super()._forget()

    def _assign(self, generation: int, members: list[JoinGroupResponseMember]) -> list[SyncGroupRequestAssignment]:
        self._group.note_members(generation, (each.member_id for each in members))
        owned = {each.member_id: owned_by(each.metadata) for each in members}
        return self._told(handed_over(owned, self._group.partitions))

    async def _take(self, generation: int, owned: list[int]) -> None:
        """What it has to let go it commits, lets go, and joins again, so that it can be handed over."""
        lost = [each for each in self.positions if each not in owned]
        if lost and self.positions != self._committed:
            await self._commit(generation)
        for each in lost:
            del self.positions[each]
        self._owned_in = generation
        self._group.note_held(self._id, generation, self.positions)
        added = await self._fetch_committed([each for each in owned if each not in self.positions])
        self._group.note_handed_over(self._id, generation, [*added])
        self.positions.update(added)
        self._group.note_held(self._id, generation, self.positions)
        self._committed = {index: self._committed.get(index, at) for index, at in self.positions.items()}
        if not lost:
            self.generation = generation


def owned_by(metadata: bytes) -> list[int]:
    told = decoder(ConsumerProtocolSubscription, VERSION)(memoryview(metadata), 2)[0]
    return [index for each in told.owned_partitions for index in each.partitions]


def handed_over(owned: dict[str, list[int]], partitions: int) -> dict[str, list[int]]:
    """By member: as even as can be, with as few that move as can be; one that moves is nobody's as long as somebody has it."""
    names = sorted(owned, key=lambda name: (-len(owned[name]), name))
    least, rest = divmod(partitions, len(names))
    quotas = {name: least + (place < rest) for place, name in enumerate(names)}
    shares = {name: owned[name][: quotas[name]] for name in names}
    taken = {index for each in owned.values() for index in each}
    free = [index for index in range(partitions) if index not in taken]
    for name in names:
        while free and len(shares[name]) < quotas[name]:
            shares[name].append(free.pop(0))
    return shares
