"""A model of a copy job as Kafka's clients recommend it (KIP-447): a member of a group with a producer of its own, which commits the offsets of what
it reads in its transactions as that member. Who lost a partition is refused by the group, whatever its producer may still do.

The member joins, says that it is there, gives up and leaves as others do (consumer_members.py); where they read, it copies.
"""

import asyncio
from functools import partial
from random import Random
from typing import Protocol

from ottla.broker.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.broker.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.consumer_members import ConsumerMember
from ottla.testing.simulation.copiers import (
    ABORTS_ONCE_IN,
    FETCH_OFFSETS_VERSION,
    GROUP_KEY,
    Copier,
    Fenced,
    GivesUp,
    Job,
    Versions,
)
from ottla.testing.simulation.copies import OFFSETS, Attempt, Copies
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.group_members import GroupMember, Over
from ottla.testing.simulation.groups import coordinating_epoch
from ottla.testing.simulation.migrants import EagerMigrant

_LOST = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
)


class _LostError(Exception):
    """The group does not let this member commit."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class Standing(Protocol):
    """As whom a member commits."""

    def standing(self) -> tuple[int, str, str | None]:
        """Generation, id, instance id."""
        ...


class GroupCopier(Copier):
    """The producer of one member, and what it does with what that reads."""

    sleeps_once_in = 12

    def __init__(
        self,
        run: Run,
        copies: Copies,
        job: Job,
        versions: Versions,
        rng: Random,
        *,
        share: float,
        keeps_id: bool,
        lasting: int,
    ) -> None:
        """``keeps_id``: each process has the same transactional id, and fences the one before; else a new one. ``lasting``: how many
        times as long as usual a transaction may take."""
        super().__init__(run, copies, job, versions, rng, share=share)
        self._timeout_ms *= lasting
        self._keeps_id = keeps_id
        self._processes = 0
        self._standing: tuple[int, str, str | None] = -1, "", None
        self.rests = False
        self.is_unsure = False
        """What came of its last transaction is not known."""

    async def copy(self, source: int, position: int, member: Standing) -> int:
        """Some records of a partition, in one transaction; from where on the rest is to be copied. Raises `Over` where the process is to begin
        anew, and what the group's answer makes of a member."""
        self._job = self._job._replace(source=source)
        self._position = position
        try:
            if self._producer is None:
                await self._until_done(self._init)
            offsets, following = await self._read()
            if offsets:
                await self._copy_in_group(self._copies.begin(source, offsets, following), member)
        except (Fenced, GivesUp):
            self.fenced += 1
            self.begin_anew()
            raise Over(is_known=False) from None
        except asyncio.CancelledError:
            self.is_unsure = True
            raise
        return self._position

    def begin_anew(self) -> None:
        """Another process: nothing of what this one knew is known."""
        self._processes += 1
        if not self._keeps_id:
            name = self._job.transactional_id.partition(" of")[0]
            self._job = self._job._replace(transactional_id=f"{name} of {self._processes}")
        self._producer, self.is_unsure = None, False
        self._client.close()
        self._client = self._run.client()
        self._look_again()

    async def _copy_in_group(self, attempt: Attempt, member: Standing) -> None:
        """As it is a member now: what it is by the time it commits is what the group will look at."""
        self._standing = member.standing()
        steps = self._writing(attempt)
        if self._versions.adds:
            steps.append(self._add_offsets)
        steps.append(partial(self._commit_offsets, attempt))
        try:
            for step in steps:
                await self._pause(rests=self.rests)
                await self._until_done(step)
        except _LostError as lost:
            await self._end(attempt, commits=False)
            raise _Refused(lost.code) from None
        await self._pause(rests=self.rests)
        await self._end(attempt, commits=self.rests or bool(self._rng.randrange(ABORTS_ONCE_IN)))

    async def _commit_offsets(self, attempt: Attempt) -> int:
        job = self._job
        place = TxnOffsetCommitRequestPartition(job.source, attempt.following)
        topics = [TxnOffsetCommitRequestTopic(job.topic, [place])]
        generation, member_id, instance_id = self._standing
        request = TxnOffsetCommitRequest(
            job.transactional_id, job.group, *self._known, generation, member_id, instance_id, topics
        )
        told = await self._ask(GROUP_KEY, request, TxnOffsetCommitResponse, self._versions.commit)
        code = int(told.topics[0].partitions[0].error_code)
        if code in _LOST:
            raise _LostError(code)
        return code


class _Refused(Exception):
    """The transaction is aborted, for the group did not let its member commit."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class _Copies(GroupMember):
    """Copies what it would read."""

    copier: GroupCopier
    held: Copies
    at: Run

    def standing(self) -> tuple[int, str, str | None]:
        return self.generation, self._id, self._instance_id

    async def _read(self) -> None:
        if self.copier.is_unsure:
            self.copier.begin_anew()
            raise Over(is_known=False)
        for index in list(self.positions):
            try:
                self.positions[index] = await self.copier.copy(index, self.positions[index], self)
            except _Refused as refused:
                self._judge(refused.code)

    async def _commit(self, generation: int) -> None:
        """In its transactions."""
        self._committed = dict(self.positions)

    async def _die(self) -> None:
        self.copier.begin_anew()
        await super()._die()

    async def _fetch_committed(self, owned: list[int]) -> dict[int, int]:
        """Where an open transaction may change it, it waits."""
        if not owned:
            return {}
        group, least = self._group, list(self.held.committed)
        wanted = OffsetFetchRequestTopics(group.topic, partition_indexes=owned)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group.name, None, -1, [wanted])], require_stable=True
        )
        epoch = coordinating_epoch(self.at, self._coordinator, group.place)
        told = (await self._ask(request, OffsetFetchResponse, FETCH_OFFSETS_VERSION)).groups[0]
        self._judge(told.error_code)
        found = {each.partition_index: each for each in told.topics[0].partitions}
        if any(each.error_code for each in found.values()):
            raise Unreachable("a transaction is open")
        if epoch < 0 or coordinating_epoch(self.at, self._coordinator, group.place) != epoch:
            raise Unreachable("who does not know yet that it coordinates no more may tell of old times")
        positions = {index: max(each.committed_offset, 0) for index, each in found.items()}
        for index, position in positions.items():
            if position < least[index]:
                story = f"{group.name}: {least[index]} of {index} was committed, {position} is told"
                self.at.invariants.violated(OFFSETS, story)
        return positions


class NewerSeat(_Copies, ConsumerMember):
    """Of the consumer protocol."""


class ClassicSeat(_Copies, EagerMigrant):
    """Of the classic one."""


class Seat:
    """A member and its producer."""

    def __init__(self, member: NewerSeat | ClassicSeat, copier: GroupCopier, held: Copies, at: Run) -> None:
        self.member, self.copier = member, copier
        member.copier, member.held, member.at = copier, held, at

    async def run(self, restless_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(restless_s, self._rest)
        await self.member.run(restless_s)

    def _rest(self) -> None:
        self.copier.rests = True
