"""Resets a group's offsets, or deletes it first, which must work once it has no members and not before."""

import asyncio
from random import Random
from typing import Any

import msgspec

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
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.groups import Group
from ottla.testing.simulation.workload import RETRY_S, BrokenPromise

COMMIT_VERSION = 9  # the last one that names topics
_LATER = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_MEMBER_ID,  # it has members still: those that died are not missed yet
    ErrorCode.NON_EMPTY_GROUP,
)


class GroupAdministrator:
    """Asks until it is done: doing it twice is as doing it once, for nobody else acts meanwhile."""

    def __init__(self, client: Client, rng: Random) -> None:
        self._client, self._rng = client, rng

    async def reset(self, group: Group) -> None:
        """To any offset up to what was committed."""
        is_new = not self._rng.randrange(2)
        if is_new:
            await self._until_done(group, self._delete)
        offsets = {index: self._rng.randint(0, group.committed.get(index, 0)) for index in range(group.partitions)}
        await self._until_done(group, lambda group: self._commit(group, offsets))
        group.note_reset(offsets, is_new=is_new)

    async def _until_done(self, group: Group, act: Any) -> None:
        while True:
            try:
                code = await act(group)
                if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                    return
                if code not in _LATER:
                    raise BrokenPromise(f"group {group.name}: an administrator is told {ErrorCode(code).name}")
            except Unreachable:
                pass
            await asyncio.sleep(RETRY_S)

    async def _delete(self, group: Group) -> int:
        answer = await self._ask(group, DeleteGroupsRequest([group.name]), DeleteGroupsResponse)
        return int(answer.results[0].error_code)

    async def _commit(self, group: Group, offsets: dict[int, int]) -> int:
        places = [OffsetCommitRequestPartition(index, offset) for index, offset in offsets.items()]
        request = OffsetCommitRequest(group.name, topics=[OffsetCommitRequestTopic(group.topic, partitions=places)])
        answer = await self._ask(group, request, OffsetCommitResponse, COMMIT_VERSION)
        return max(int(each.error_code) for each in answer.topics[0].partitions)

    async def _ask(self, group: Group, request: msgspec.Struct, response: Any, version: int | None = None) -> Any:
        wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=[group.name])
        found = (await self._client.ask_any(wanted, FindCoordinatorResponse)).coordinators[0]
        if found.error_code:
            raise Unreachable("no coordinator")
        return await self._client.call((found.host, found.port), request, response, version)
