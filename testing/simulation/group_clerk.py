"""Commits for groups that have no members, and deletes what it committed: it alone knows what must be there.

What nobody knows the outcome of may be done later: that group's name is given up.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec

from ottla.broker.coordinator.placement import partition_of
from ottla.broker.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.broker.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.broker.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.broker.wire.messages.offset_delete_response import OffsetDeleteResponse
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.groups import STAYS, coordinating_epoch
from ottla.testing.simulation.workload import RETRY_S, BrokenPromise

VERSION = 9  # the last one that names topics
PAUSE_S = (0.02, 0.25)
OLD_VERSION, KEPT_MS = 4, 7 * 86_400_000
"""The last one of OffsetCommit that says how long its offsets are to be kept; longer than any clock jumps."""
OFFSETS_MAX = 1_000
NOT_DONE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class GroupClerk:
    """``done`` so far. One request after the other."""

    def __init__(self, run: Run, client: Client, topic: str, partitions: int, coordinators: int, rng: Random) -> None:
        self.done = self.checked = 0
        self._run, self._client, self._topic, self._partitions = run, client, topic, partitions
        self._coordinators, self._rng = coordinators, rng
        self._names = 0
        self._known: dict[int, int] = {}
        self._coordinator: tuple[str, int] | None = None

    async def run(self) -> None:
        """Until cancelled."""
        acts = (self._commit, self._commit, self._commit, self._fetch, self._fetch, self._delete_one, self._delete)
        while True:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            try:
                if self._coordinator is None:
                    await self._find_coordinator()
                else:
                    await self._do(self._rng.choice(acts))
            except Unreachable:
                self._coordinator = None
                await asyncio.sleep(RETRY_S)

    @property
    def _name(self) -> str:
        return f"clerk {self._names}"

    async def _do(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await act()
            self.done += 1
        except Unreachable:
            if act != self._fetch:
                self._names, self._known = self._names + 1, {}
            raise

    async def _find_coordinator(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._name])
        found = (await self._client.ask_any(request, FindCoordinatorResponse)).coordinators[0]
        if not found.error_code:
            self._coordinator = found.host, found.port

    async def _ask(self, request: msgspec.Struct, response: Any, version: int | None = None) -> Any:
        assert self._coordinator is not None
        return await self._client.call(self._coordinator, request, response, version)

    def _judge(self, code: int, *others: ErrorCode) -> None:
        """Raises Unreachable for what may be done later, or not at all; BrokenPromise for what no coordinator should say."""
        if code in NOT_DONE:
            raise Unreachable(ErrorCode(code).name)
        if code and code not in others:
            raise BrokenPromise(f"{self._name}: {ErrorCode(code).name}")

    # --- acts, each of which raises Unreachable when nobody knows what came of it ---------------------------------------

    async def _commit(self) -> None:
        index, offset = self._rng.randrange(self._partitions), self._rng.randrange(OFFSETS_MAX)
        version, kept_ms = self._rng.choice(((VERSION, -1), (VERSION, -1), (OLD_VERSION, KEPT_MS)))
        topic = OffsetCommitRequestTopic(self._topic, partitions=[OffsetCommitRequestPartition(index, offset)])
        request = OffsetCommitRequest(self._name, retention_time_ms=kept_ms, topics=[topic])
        answer = await self._ask(request, OffsetCommitResponse, version)
        self._judge(answer.topics[0].partitions[0].error_code)
        self._known[index] = offset

    async def _delete_one(self) -> None:
        index = self._rng.randrange(self._partitions)
        topic = OffsetDeleteRequestTopic(self._topic, [OffsetDeleteRequestPartition(index)])
        answer = await self._ask(OffsetDeleteRequest(self._name, [topic]), OffsetDeleteResponse)
        self._judge(answer.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
        self._known.pop(index, None)

    async def _delete(self) -> None:
        answer = await self._ask(DeleteGroupsRequest([self._name]), DeleteGroupsResponse)
        self._judge(answer.results[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)
        self._known = {}

    async def _fetch(self) -> None:
        """What a coordinator that does not know yet that it is none tells may be old."""
        place = partition_of(self._name, self._coordinators)
        epoch = coordinating_epoch(self._run, self._coordinator, place)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self._name, None, -1, None)])
        told = (await self._ask(request, OffsetFetchResponse, VERSION)).groups[0]
        self._judge(told.error_code)
        found = {each.partition_index: each.committed_offset for topic in told.topics for each in topic.partitions}
        if epoch < 0 or coordinating_epoch(self._run, self._coordinator, place) != epoch:
            return
        if found != self._known:
            self._run.invariants.violated(STAYS, f"{self._name} committed {self._known}, {found} is told")
        self.checked += 1
