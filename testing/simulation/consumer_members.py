"""A member of the consumer protocol (KIP-848): it tells what it has and does what it is told, heartbeat by heartbeat.

Nobody waits for anybody: what it has to let go it lets go at once, says so, and reads on with the rest.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from ottla.broker.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.broker.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.group_members import HEARTBEAT_S, POLL_S, GroupMember

CONSUMER_SESSION_MS = 500
"""A setting of the broker's; as long a member may take to let go."""
SETTINGS = {
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(CONSUMER_SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2


class ConsumerMember(GroupMember):
    """Its generation is its member epoch."""

    expression: str | None = None
    """It subscribes to all topics that match it, not to one by its name."""
    _says_all = True
    _assigned: Sequence[int] = ()

    async def _leave(self) -> None:
        self._group.note_released(self._id)  # before it says so: another may have all of it before the answer comes
        if self._coordinator is not None and self._id:
            with suppress(Unreachable):
                is_back_soon = self._instance_id is not None and bool(self._rng.randrange(2))
                await self._tell(LEAVES_FOR_A_WHILE if is_back_soon else LEAVES)
        await self._die()

    def _forget(self) -> None:
        self._group.note_released(self._id)
        super()._forget()
        self._assigned, self._says_all = (), True

    def _judge(self, code: int) -> None:
        """Whose epoch is old has not heard of the new one yet; who is fenced begins anew, with its id."""
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            self._beaten_s = 0.0
            raise Unreachable("not heard yet")
        if code == ErrorCode.UNRELEASED_INSTANCE_ID:
            raise Unreachable("the process before is not missed yet")
        super()._judge(ErrorCode.ILLEGAL_GENERATION if code == ErrorCode.FENCED_MEMBER_EPOCH else code)

    async def _join(self) -> None:
        if not self._id:
            self._id = str(UUID(int=self._rng.getrandbits(128), version=4))
        await self._beat(JOINS)

    async def _work(self) -> None:
        if asyncio.get_running_loop().time() - self._beaten_s > HEARTBEAT_S * self._patience:
            await self._beat(self.generation)
        if sorted(self.positions) != [*self._assigned]:
            await self._reconcile()
        await self._read()
        if self.positions != self._committed:
            await self._commit(self.generation)
        await asyncio.sleep(self._rng.uniform(*POLL_S))

    async def _beat(self, epoch: int) -> None:
        asked_s = asyncio.get_running_loop().time()
        told = await self._tell(epoch)
        self._judge(told.error_code)
        self.generation, self._beaten_s = told.member_epoch, asked_s
        if told.assignment is not None:
            self._assigned = sorted(index for each in told.assignment.topic_partitions for index in each.partitions)
            self._group.note_owner(self.name, self.generation, self._assigned)
        self._group.note_reading(self._id, self.positions, asked_s)

    async def _tell(self, epoch: int) -> Any:
        """After a lost answer it says everything, and so is told everything."""
        group, says_all = self._group, self._says_all or epoch == JOINS
        self._says_all = True
        owned = [TopicPartitions(group.topic_id, [*self.positions])] if self.positions else []
        request = ConsumerGroupHeartbeatRequest(
            group.name,
            self._id,
            epoch,
            self._instance_id,
            rebalance_timeout_ms=CONSUMER_SESSION_MS if says_all else -1,
            subscribed_topic_names=([] if self.expression else [group.topic]) if says_all else None,
            subscribed_topic_regex=self.expression if says_all else None,
            topic_partitions=owned,
        )
        told = await self._ask(request, ConsumerGroupHeartbeatResponse)
        self._says_all = bool(told.error_code)
        return told

    async def _reconcile(self) -> None:
        """What it lets go it commits first, and says so with its next heartbeat, which is soon."""
        lost = [each for each in self.positions if each not in self._assigned]
        try:
            if lost and self.positions != self._committed:
                await self._commit(self.generation)
        finally:
            for each in lost:
                self.positions.pop(each, None)
                self._committed.pop(each, None)
        added = [each for each in self._assigned if each not in self.positions]
        self._group.note_given(self._id, added, CONSUMER_SESSION_MS / 1000)
        found = await self._fetch_committed(added)
        self.positions.update(found)
        self._committed.update(found)
        self._group.note_reading(self._id, self.positions, self._beaten_s)
        if lost:
            self._beaten_s = 0.0
