"""A model of a classic group's member: joins, takes what its leader assigns, reads on from where the group committed, commits.

What it may rely on stands in `Group`, which hears of everything that members are told.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.broker.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.broker.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.broker.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.broker.wire.messages.sync_group_response import SyncGroupResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.consumers import Leader
from ottla.testing.simulation.groups import Group
from ottla.testing.simulation.workload import FETCH_BYTES, FETCH_VERSION, RETRIABLE, RETRY_S, BrokenPromise

SESSION_MS = 700
REBALANCE_MS = 900
"""Less than a client waits for an answer."""
LEAST_SHARE = 0.5
"""Of those two, however brief a run is: a coordinator has to be found in that time."""
HEARTBEAT_S = 0.2
POLL_S = (0.08, 0.25)
COMMIT_VERSION = FETCH_OFFSETS_VERSION = 9  # the last ones that name topics
LIVES_S = (0.4, 3.0)
AWAY_S = (0.05, 0.8)
PAUSES_S = (0.3, 2.5)

_ELSEWHERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # it has yet to hear of a topic that was just made
)
_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS,)
_ANEW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


class Over(Exception):
    """This member's place in its generation is lost. ``is_known``: its id is good still."""

    def __init__(self, *, is_known: bool) -> None:
        super().__init__()
        self.is_known = is_known


class GroupMember:
    """One process after another, which leave, die, or are paused and wake again with what they had."""

    protocol = "range"

    def __init__(
        self, client: Callable[[], Client], group: Group, rng: Random, instance_id: str | None, share: float = 1.0
    ) -> None:
        """``share`` of the usual time is what its lives and its absences take."""
        self.generation = -1
        self.positions: dict[int, int] = {}
        """What it reads, once it knows from where on."""
        self._clients, self._group, self._rng, self._instance_id = client, group, rng, instance_id
        self._share, self._patience = share, max(share, LEAST_SHARE)
        self._client, self._reads = client(), client()
        self._committed: dict[int, int] = {}
        """What it fetched or committed last, of what it reads."""
        self._id = ""
        self._coordinator: tuple[str, int] | None = None
        self._beaten_s = 0.0
        self._leaders: dict[int, Leader] = {}
        """As clients do, it never goes back to an older leader epoch."""
        self._outdated = True

    @property
    def name(self) -> str:
        """Who owns what: a static member's processes are one owner after another."""
        return self._instance_id if self._instance_id is not None else self._id

    async def begin(self) -> None:
        """Commits before anybody joins: a group without members and offsets would be forgotten, with its generation."""
        while not self._group.commits:
            try:
                await self._find_coordinator()
                self.positions = dict.fromkeys(range(self._group.partitions), 0)
                await self._commit(self.generation)
            except (Unreachable, Over):
                await asyncio.sleep(RETRY_S)
        self._forget()

    async def run(self, restless_s: float) -> None:
        """Until cancelled; after ``restless_s`` it stays what it is then."""
        loop = asyncio.get_running_loop()
        rest_s = loop.time() + restless_s
        while loop.time() < rest_s:
            lives_s = min(self._share * self._rng.uniform(*LIVES_S), rest_s - loop.time())
            await self.live_for(lives_s)
        await self._live()

    async def live_for(self, lives_s: float | None) -> bool:
        """So long, then it leaves, dies or sleeps; None: until cancelled. Whether the next that lives is another process."""
        try:
            async with asyncio.timeout(lives_s):
                await self._live()
        except TimeoutError:
            end = self._rng.choice((self._leave, self._die, self._die, self._sleep))
            await end()
            return end != self._sleep
        return True

    # --- ends ---------------------------------------------------------------------------------------------------------

    async def depart(self) -> None:
        """For good, unless it runs again."""
        await self._leave()

    async def _leave(self) -> None:
        told = MemberIdentity(self._id, self._instance_id, "enough")
        if self._coordinator is not None and self._id:
            with suppress(Unreachable):
                await self._ask(LeaveGroupRequest(self._group.name, "", [told]), LeaveGroupResponse)
        await self._die()

    async def _die(self) -> None:
        self._forget()
        for client in (self._client, self._reads):
            client.close()
        self._client, self._reads = self._clients(), self._clients()
        self._coordinator = None
        await asyncio.sleep(self._share * self._rng.uniform(*AWAY_S))

    async def _sleep(self) -> None:
        """It wakes as if no time had passed."""
        await asyncio.sleep(self._share * self._rng.uniform(*PAUSES_S))

    def _forget(self) -> None:
        self._id, self.generation, self.positions, self._committed = "", -1, {}, {}

    # --- a life -------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            try:
                if self._coordinator is None:
                    await self._find_coordinator()
                if self.generation < 0:
                    await self._join()
                else:
                    await self._work()
            except Unreachable:
                self._coordinator = None
                await asyncio.sleep(RETRY_S)
            except Over as over:
                self._fall_out(is_known=over.is_known)
                await asyncio.sleep(RETRY_S)

    def _fall_out(self, *, is_known: bool) -> None:
        """An eager member stops reading before it joins the next generation."""
        known_id = self._id if is_known else ""
        self._forget()
        self._id = known_id

    async def _find_coordinator(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group.name])
        found = (await self._client.ask_any(request, FindCoordinatorResponse)).coordinators[0]
        if found.error_code:
            raise Unreachable("no coordinator")
        self._coordinator = found.host, found.port

    async def _ask(self, request: msgspec.Struct, response: Any, version: int | None = None) -> Any:
        if self._coordinator is None:
            raise Unreachable("no coordinator is known")
        return await self._client.call(self._coordinator, request, response, version)

    def _judge(self, code: int) -> None:
        """Raises what an error makes a member do."""
        error = ErrorCode(code)
        if error in _ELSEWHERE:
            raise Unreachable(error.name)
        if error in _AGAIN:
            raise Over(is_known=True)
        if error in _ANEW:
            raise Over(is_known=False)
        if error:
            raise BrokenPromise(f"group {self._group.name}: a member is told {error.name}")

    # --- joining ------------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        generation, owned = await self._be_assigned()
        self._group.note_owner(self.name, generation, owned)
        self._beaten_s = asyncio.get_running_loop().time()
        await self._take(generation, owned)

    async def _be_assigned(self) -> tuple[int, list[int]]:
        """JoinGroup and SyncGroup: the generation, and what is this member's in it."""
        group = self._group
        request = JoinGroupRequest(
            group.name,
            int(SESSION_MS * self._patience),
            int(REBALANCE_MS * self._patience),
            self._id,
            self._instance_id,
            "consumer",
            [JoinGroupRequestProtocol(self.protocol, self._subscription())],
        )
        joined = await self._ask(request, JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = request.member_id = joined.member_id
            joined = await self._ask(request, JoinGroupResponse)
        self._judge(joined.error_code)
        self._id = joined.member_id
        assignments = []
        if joined.leader == self._id and not joined.skip_assignment:
            assignments = self._assign(joined.generation_id, joined.members)
        told = await self._ask(
            SyncGroupRequest(
                group.name, joined.generation_id, self._id, self._instance_id, "consumer", self.protocol, assignments
            ),
            SyncGroupResponse,
        )
        self._judge(told.error_code)
        return joined.generation_id, self._mine(told.assignment)

    def _subscription(self) -> bytes:
        """What it tells its leader."""
        return subscription(ConsumerProtocolSubscription([self._group.topic]))

    def _assign(self, generation: int, members: list[JoinGroupResponseMember]) -> list[SyncGroupRequestAssignment]:
        """The range assignment of one topic, to be told by the leader."""
        names, partitions = sorted(each.member_id for each in members), self._group.partitions
        shares: dict[str, list[int]] = {each: [] for each in names}
        for index in range(partitions):
            shares[names[index * len(names) // partitions if len(names) < partitions else index]].append(index)
        return self._told(shares)

    def _told(self, shares: Mapping[str, list[int]]) -> list[SyncGroupRequestAssignment]:
        """What a leader tells each member, by its id; nobody else reads it."""
        return [SyncGroupRequestAssignment(name, ",".join(map(str, share)).encode()) for name, share in shares.items()]

    def _mine(self, assignment: bytes) -> list[int]:
        return [int(each) for each in assignment.decode().split(",") if each]

    async def _take(self, generation: int, owned: list[int]) -> None:
        self.positions = await self._fetch_committed(owned)
        self._committed = dict(self.positions)
        self.generation = generation

    async def _fetch_committed(self, owned: list[int]) -> dict[int, int]:
        group = self._group
        if not owned:
            return {}
        wanted = OffsetFetchRequestTopics(group.topic, partition_indexes=owned)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group.name, None, -1, [wanted])])
        look = group.look(self._coordinator)
        told = (await self._ask(request, OffsetFetchResponse, FETCH_OFFSETS_VERSION)).groups[0]
        self._judge(told.error_code)
        found = {each.partition_index: each.committed_offset for each in told.topics[0].partitions}
        group.note_fetched(self._coordinator, look, found)
        return {index: max(offset, 0) for index, offset in found.items()}

    # --- working ------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """A poll: reads, processes, commits, and is heard from."""
        loop = asyncio.get_running_loop()
        await self._read()
        if self.positions != self._committed:
            await self._commit(self.generation)
        if loop.time() - self._beaten_s > HEARTBEAT_S * self._patience:
            self._beaten_s = loop.time()
            await self._be_heard()
        await asyncio.sleep(self._rng.uniform(*POLL_S))

    async def _be_heard(self) -> None:
        request = HeartbeatRequest(self._group.name, self.generation, self._id, self._instance_id)
        self._judge((await self._ask(request, HeartbeatResponse)).error_code)

    async def _read(self) -> None:
        """One partition after another that has something new; a leader that cannot be reached is looked for next time."""
        group = self._group
        for index in list(self.positions):
            if self.positions[index] >= group.end(index):
                continue
            try:
                if self._outdated:
                    await self._find_leaders()
                leader = self._leaders.get(index)
                if leader is None:
                    raise Unreachable("nobody leads")
                async with asyncio.timeout(self._patience * SESSION_MS / 2_000):
                    self.positions[index] = await self._fetch(leader, index)
            except (Unreachable, TimeoutError):
                self._outdated = True

    async def _find_leaders(self) -> None:
        topic, brokers = await self._reads.topic(self._group.topic)
        for each in topic.partitions:
            known, address = self._leaders.get(each.partition_index), brokers.get(each.leader_id)
            if address is not None and (known is None or each.leader_epoch >= known.epoch):
                self._leaders[each.partition_index] = Leader(address, each.leader_epoch)
        self._outdated = False

    async def _fetch(self, leader: Leader, index: int) -> int:
        position = self.positions[index]
        wanted = FetchPartition(
            partition=index,
            current_leader_epoch=leader.epoch,
            fetch_offset=position,
            partition_max_bytes=FETCH_BYTES,
        )
        topics = [FetchTopic(topic=self._group.topic, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=0, max_bytes=FETCH_BYTES, topics=topics)
        answer = await self._reads.call(leader.address, request, FetchResponse, FETCH_VERSION)
        data = answer.responses[0].partitions[0]
        if data.error_code in RETRIABLE:
            raise Unreachable("another leads")
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not self._group.is_led_in(index, leader.epoch):
            # It leads no more, does not know, and lacks what the group has read since. Clients do not ask it: they commit the epoch in
            # which they read, and who goes on from there has no use for older leaders (KIP-320).
            raise Unreachable("a former leader")
        if data.error_code:
            raise BrokenPromise(f"fetch of {self._group.topic}-{index}: {ErrorCode(data.error_code).name}")
        return self._group.process(position, data)

    async def _commit(self, generation: int) -> None:
        group, told, before = self._group, dict(self.positions), dict(self._group.committed)
        places = [OffsetCommitRequestPartition(index, offset) for index, offset in told.items()]
        topic = OffsetCommitRequestTopic(group.topic, partitions=places)
        request = OffsetCommitRequest(group.name, generation, self._id, self._instance_id, topics=[topic])
        try:
            answer = await self._ask(request, OffsetCommitResponse, COMMIT_VERSION)
        except Unreachable:
            # It may still come, behind a later one of this generation: this member sends no other in it.
            raise Over(is_known=False) from None
        for each in answer.topics[0].partitions:
            if each.error_code == ErrorCode.NONE:
                index = each.partition_index
                group.note_committed(index, told[index], before.get(index, -1))
            else:
                self._judge(each.error_code)
        self._committed = told


def subscription(told: ConsumerProtocolSubscription, version: int = 1) -> bytes:
    """What a member tells its leader, as bytes."""
    return version.to_bytes(2, "big") + b"".join(encoder(ConsumerProtocolSubscription, version)(told))
