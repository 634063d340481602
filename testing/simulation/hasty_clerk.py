"""Commits for a group without members, several times at once over one connection, as a client does that does not wait: the last one counts.

What nobody knows the outcome of may be done later: that group's name is given up.
"""

import asyncio
from collections.abc import Sequence
from random import Random

from ottla.broker.coordinator.placement import partition_of
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import REQUEST_TIMEOUT_S, Client, Unreachable
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.group_clerk import NOT_DONE, VERSION
from ottla.testing.simulation.groups import STAYS, coordinating_epoch
from ottla.testing.simulation.pipelined_connection import PipelinedConnection
from ottla.testing.simulation.workload import RETRY_S, BrokenPromise

PAUSE_S = (0.03, 0.2)
AT_ONCE = (2, 6)


class HastyClerk:
    """``checked`` so often what it committed was there. ``sizes``: of what it adds to a commit, drawn for each."""

    def __init__(
        self, run: Run, client: Client, topic: str, coordinators: int, sizes: Sequence[int], rng: Random
    ) -> None:
        self.checked = 0
        self._run, self._client, self._topic, self._coordinators = run, client, topic, coordinators
        self._sizes, self._rng = sizes, rng
        self._names = self._offset = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                coordinator = await self._find_coordinator()
                connection = await PipelinedConnection.open(*coordinator)
                try:
                    await self._work(connection, coordinator)
                finally:
                    connection.close()
            except (Unreachable, TimeoutError):
                self._names += 1
                await asyncio.sleep(RETRY_S)

    @property
    def _name(self) -> str:
        return f"hasty {self._names}"

    async def _find_coordinator(self) -> tuple[str, int]:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._name])
        found = (await self._client.ask_any(request, FindCoordinatorResponse)).coordinators[0]
        if found.error_code:
            raise Unreachable(ErrorCode(found.error_code).name)
        return found.host, found.port

    async def _work(self, connection: PipelinedConnection, coordinator: tuple[str, int]) -> None:
        """Until something fails."""
        place = partition_of(self._name, self._coordinators)
        while True:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            commits = [self._commit(connection) for _ in range(self._rng.randint(*AT_ONCE))]
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                for answer in await asyncio.gather(*commits):
                    self._judge(answer.topics[0].partitions[0].error_code)
                epoch = coordinating_epoch(self._run, coordinator, place)
                told = await self._fetch(connection)
            if epoch < 0 or coordinating_epoch(self._run, coordinator, place) != epoch:
                continue  # what a coordinator that does not know yet that it is none tells may be old
            if told != self._offset:
                self._run.invariants.violated(STAYS, f"{self._name} last committed {self._offset}, {told} is told")
            self.checked += 1

    def _commit(self, connection: PipelinedConnection) -> "asyncio.Future[OffsetCommitResponse]":
        self._offset += 1
        told = "." * self._rng.choice(self._sizes)
        partition = OffsetCommitRequestPartition(0, self._offset, committed_metadata=told)
        request = OffsetCommitRequest(
            self._name, topics=[OffsetCommitRequestTopic(self._topic, partitions=[partition])]
        )
        return connection.send(request, OffsetCommitResponse, VERSION)

    async def _fetch(self, connection: PipelinedConnection) -> int:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self._name, None, -1, None)])
        told = (await connection.send(request, OffsetFetchResponse, VERSION)).groups[0]
        self._judge(told.error_code)
        return next((each.committed_offset for topic in told.topics for each in topic.partitions), -1)

    def _judge(self, code: int) -> None:
        if code in NOT_DONE:
            raise Unreachable(ErrorCode(code).name)
        if code:
            raise BrokenPromise(f"{self._name}: {ErrorCode(code).name}")
