"""A model of a copy job: reads, writes what it read and commits how far it has read in one transaction, again and again.

Each step is asked for until there is an answer, as clients do it; between any two of them the process may die, or sleep for long and
go on as if no time had passed. A newer process of the same transactional id fences it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec

from ottla.broker.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.broker.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.broker.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.broker.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.broker.wire.messages.end_txn_request import EndTxnRequest
from ottla.broker.wire.messages.end_txn_response import EndTxnResponse
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.broker.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.broker.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from ottla.log.records import Record, encode_batch
from ottla.quorum.controller.decisions.features import TRANSACTION_VERSION
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.copies import OFFSETS, Attempt, Copies
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.groups import coordinating_epoch
from ottla.testing.simulation.reading import check_answer
from ottla.testing.simulation.workload import FETCH_BYTES, FETCH_VERSION, RETRIABLE, RETRY_S, BrokenPromise

TIMEOUT_MS = 900
"""Of a transaction; for brief runs half of it."""
PATIENCE_S = 2.5
"""So long a step is tried: who gives up dies, and what it left open is aborted."""
POLL_S = (0.02, 0.12)
LIVES_S = (0.3, 2.5)
AWAY_S = (0.05, 0.6)
SLEEPS_S = (0.1, 1.6)
SLEEPS_ONCE_IN, ABORTS_ONCE_IN = 40, 7
GROUP_KEY, TRANSACTION_KEY = 0, 1
FETCH_OFFSETS_VERSION = 9
RECORDS_MAX = 5

_LATER = (
    *RETRIABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
_NOT_DONE = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)

Step = Callable[[], Awaitable[int]]
"""Asks for something once; the error that it is told."""


class Job(NamedTuple):
    """What a transactional id copies, for its group."""

    transactional_id: str
    group: str
    place: int
    """The partition that keeps the group."""
    topic: str
    source: int


class Versions(NamedTuple):
    """Of the requests of a client. ``adds``: it adds partitions to its transactions itself."""

    adds: bool
    produce: int
    commit: int
    end: int


NEW_FROM = 2
"""The transaction.version that such a client needs."""
OLD, NEW = Versions(True, 11, 3, 4), Versions(False, 12, 5, 5)
"""Before KIP-890's second part, and since: the end of a transaction bumps the epoch then."""


class Fenced(Exception):
    """Another process goes on, or the coordinator has aborted what was open."""


class GivesUp(Exception):
    """A step could not be done for so long that the process ends."""


class Copier:
    """One process after another. ``done``: transactions that were committed."""

    sleeps_once_in = SLEEPS_ONCE_IN

    def __init__(
        self,
        run: Run,
        copies: Copies,
        job: Job,
        versions: Versions,
        rng: Random,
        *,
        share: float = 1.0,
        is_first: bool = True,
    ) -> None:
        """``share`` of the usual time is what lives take. Of several with one transactional id the first goes on at the end."""
        self.done = self.fenced = 0
        self._run, self._copies, self._job, self._versions, self._rng = run, copies, job, versions, rng
        self._share, self._is_first = share, is_first
        self._wanted = versions
        """What the client can; a cluster whose transaction.version is older makes it older."""
        self._timeout_ms = int(TIMEOUT_MS * max(share, 0.5))
        self._client = run.client()
        self._coordinators: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], tuple[tuple[str, int], int]] = {}
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self._position = 0

    async def run(self, restless_s: float) -> None:
        """Until cancelled; after ``restless_s`` it stays what it is then."""
        loop = asyncio.get_running_loop()
        rest_s = loop.time() + restless_s
        while loop.time() < rest_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._share * self._rng.uniform(*LIVES_S), rest_s - loop.time())):
                    await self._live()
            await self._die()
        await self._live(rests=True)

    async def _die(self) -> None:
        self._producer = None
        self._client.close()
        self._client = self._run.client()
        self._look_again()
        await asyncio.sleep(self._share * self._rng.uniform(*AWAY_S))

    async def _live(self, *, rests: bool = False) -> None:
        while True:
            try:
                if self._producer is None:
                    await self._begin()
                await self._copy(rests=rests)
            except Fenced:
                self.fenced += 1
                self._producer = None
                if rests and not self._is_first:
                    return
                await asyncio.sleep(self._share * self._rng.uniform(*AWAY_S))
            except GivesUp:
                await self._die()

    # --- steps --------------------------------------------------------------------------------------------------------

    async def _until_done(self, step: Step) -> int:
        """Asks until it is told something that counts; how often it was told nothing that does, of which anything may come."""
        loop = asyncio.get_running_loop()
        until_s, tries = loop.time() + PATIENCE_S, 0
        while loop.time() < until_s:
            try:
                error = ErrorCode(await step())
                if not error:
                    return tries
                if error in _FENCED:
                    raise Fenced(error.name) if not tries else Fenced()
                if error not in _LATER:
                    raise BrokenPromise(f"{self._job.transactional_id}: a copier is told {error.name}")
                if error not in _NOT_DONE:
                    self._look_again()
                    tries += 1
            except Unreachable:
                self._look_again()
                tries += 1
            await asyncio.sleep(RETRY_S)
        raise GivesUp

    async def _pause(self, *, rests: bool) -> None:
        """Seldom it stops here for long."""
        if not rests and not self._rng.randrange(self.sleeps_once_in):
            await asyncio.sleep(self._share * self._rng.uniform(*SLEEPS_S))

    async def _ask(self, key_type: int, request: msgspec.Struct, response: Any, version: int | None = None) -> Any:
        """Of the coordinator of the transactional id, or of the group."""
        return await self._client.call(await self._coordinator(key_type), request, response, version)

    async def _coordinator(self, key_type: int) -> tuple[str, int]:
        if key_type not in self._coordinators:
            key = self._job.group if key_type == GROUP_KEY else self._job.transactional_id
            wanted = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            found = (await self._client.ask_any(wanted, FindCoordinatorResponse)).coordinators[0]
            if found.error_code:
                raise Unreachable("no coordinator")
            self._coordinators[key_type] = found.host, found.port
        return self._coordinators[key_type]

    async def _leader(self, topic: str, index: int) -> tuple[tuple[str, int], int]:
        if (topic, index) not in self._leaders:
            described, brokers = await self._client.topic(topic)
            for each in described.partitions:
                if each.leader_id in brokers:
                    self._leaders[topic, each.partition_index] = brokers[each.leader_id], each.leader_epoch
        if (topic, index) not in self._leaders:
            raise Unreachable("nobody leads")
        return self._leaders[topic, index]

    def _look_again(self) -> None:
        self._coordinators.clear()
        self._leaders.clear()

    async def desert(self) -> None:
        """Begins a transaction, and is never seen again."""
        with suppress(Fenced, GivesUp):
            await self._begin()
            offsets, following = await self._read()
            while not offsets:
                await asyncio.sleep(RETRY_S)
                offsets, following = await self._read()
            for step in self._writing(self._copies.begin(self._job.source, offsets, following)):
                await self._until_done(step)

    # --- a process begins ---------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        await self._until_done(self._init)
        await self._until_done(self._fetch_committed)

    async def _init(self) -> int:
        request = InitProducerIdRequest(self._job.transactional_id, self._timeout_ms)
        told = await self._ask(TRANSACTION_KEY, request, InitProducerIdResponse, 5)
        if not told.error_code:
            self._versions = self._wanted if await self._allows_new() else OLD
            self._go_on_as(told.producer_id, told.producer_epoch)
        return int(told.error_code)

    async def _allows_new(self) -> bool:
        """As its coordinator tells in ApiVersions, which clients ask for when they connect."""
        server = self._run.servers.get(self._run.cluster.brokers.index(await self._coordinator(TRANSACTION_KEY)) + 1)
        return server is not None and server.context.image.features.get(TRANSACTION_VERSION, 0) >= NEW_FROM

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        if self._producer != (producer_id, epoch):
            self._producer, self._sequences = (producer_id, epoch), {}

    async def _fetch_committed(self) -> int:
        """Where an open transaction may change it, it waits."""
        job = self._job
        wanted = OffsetFetchRequestTopics(job.topic, partition_indexes=[job.source])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(job.group, None, -1, [wanted])], require_stable=True
        )
        least, where = self._copies.committed[job.source], await self._coordinator(GROUP_KEY)
        epoch = coordinating_epoch(self._run, where, job.place)
        told = (await self._ask(GROUP_KEY, request, OffsetFetchResponse, FETCH_OFFSETS_VERSION)).groups[0]
        if told.error_code:
            return int(told.error_code)
        found = told.topics[0].partitions[0]
        if found.error_code:
            return int(found.error_code)
        if epoch < 0 or coordinating_epoch(self._run, where, job.place) != epoch:
            return (
                ErrorCode.UNSTABLE_OFFSET_COMMIT
            )  # who does not know yet that it coordinates no more may tell of old times
        self._position = max(found.committed_offset, 0)
        if self._position < least:
            story = f"{job.group}: {least} of {job.source} was committed, {self._position} is told"
            self._run.invariants.violated(OFFSETS, story)
        return 0

    # --- a transaction ------------------------------------------------------------------------------------------------

    async def _copy(self, *, rests: bool) -> None:
        offsets, following = await self._read()
        if not offsets:
            await asyncio.sleep(self._rng.uniform(*POLL_S))
            return
        attempt = self._copies.begin(self._job.source, offsets, following)
        steps = self._writing(attempt)
        if self._versions.adds:
            steps.append(self._add_offsets)
        steps.append(partial(self._commit_offsets, attempt))
        for step in steps:
            await self._pause(rests=rests)
            await self._until_done(step)
        await self._pause(rests=rests)
        await self._end(attempt, commits=rests or bool(self._rng.randrange(ABORTS_ONCE_IN)))

    def _writing(self, attempt: Attempt) -> list[Step]:
        steps: list[Step] = [partial(self._add_partitions, attempt)] if self._versions.adds else []
        return steps + [partial(self._produce, index, self._batch(attempt, index)) for index in attempt.outputs]

    async def _end(self, attempt: Attempt, *, commits: bool) -> None:
        attempt.may_commit = commits
        try:
            await self._until_done(lambda: self._ask_for_end(commits))
        except Fenced as fenced:
            attempt.refused = bool(fenced.args)  # else an answer was lost, which may have been another
            raise
        if commits:
            self._copies.note_committed(attempt)
            self._position = attempt.following
            self.done += 1
        else:
            attempt.told = False

    async def _read(self) -> tuple[list[int], int]:
        """Some offsets of records from its position on, and the one behind them."""
        job = self._job
        try:
            where, epoch = await self._leader(job.topic, job.source)
            wanted = FetchPartition(
                partition=job.source,
                current_leader_epoch=epoch,
                fetch_offset=self._position,
                partition_max_bytes=FETCH_BYTES,
            )
            topics = [FetchTopic(topic=job.topic, partitions=[wanted])]
            request = FetchRequest(max_wait_ms=0, max_bytes=FETCH_BYTES, isolation_level=1, topics=topics)
            answer = await self._client.call(where, request, FetchResponse, FETCH_VERSION)
        except Unreachable:
            self._look_again()
            return [], 0
        data = answer.responses[0].partitions[0]
        if data.error_code in RETRIABLE or self._copies.is_old(job.topic, job.source, epoch):
            self._look_again()
            return [], 0
        if data.error_code:
            raise BrokenPromise(f"fetch of {job.topic}-{job.source}: {ErrorCode(data.error_code).name}")
        _, found = check_answer(self._run.invariants, job.topic, self._position, data)
        offsets = [offset for _, offset in found][: self._rng.randint(1, RECORDS_MAX)]
        return offsets, offsets[-1] + 1 if offsets else 0

    @property
    def _known(self) -> tuple[int, int]:
        assert self._producer is not None
        return self._producer

    def _batch(self, attempt: Attempt, index: int) -> bytes:
        """With its sequence, also when it is sent again."""
        producer_id, epoch = self._known
        sequence, offsets = self._sequences.get(index, 0), attempt.outputs[index]
        self._sequences[index] = sequence + len(offsets)
        records = [
            Record(place, 1, b"", f"{attempt.number}:{attempt.source}:{offset}".encode())
            for place, offset in enumerate(offsets)
        ]
        return bytes(
            encode_batch(
                records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
            )
        )

    async def _add_partitions(self, attempt: Attempt) -> int:
        topic = AddPartitionsToTxnTopic(self._copies.topic, [*attempt.outputs])
        request = AddPartitionsToTxnRequest([], self._job.transactional_id, *self._known, [topic])
        told = await self._ask(TRANSACTION_KEY, request, AddPartitionsToTxnResponse, 3)
        return _worst(each.partition_error_code for each in told.results_by_topic_v3_and_below[0].results_by_partition)

    async def _produce(self, index: int, batch: bytes) -> int:
        where, _ = await self._leader(self._copies.topic, index)
        topic = TopicProduceData(name=self._copies.topic, partition_data=[PartitionProduceData(index, batch)])
        request = ProduceRequest(self._job.transactional_id, acks=-1, timeout_ms=1500, topic_data=[topic])
        told = await self._client.call(where, request, ProduceResponse, self._versions.produce)
        found = told.responses[0].partition_responses[0]
        if not found.error_code:
            self._run.note_acknowledged(self._copies.topic, index, found.base_offset)
        return int(found.error_code)

    async def _add_offsets(self) -> int:
        request = AddOffsetsToTxnRequest(self._job.transactional_id, *self._known, self._job.group)
        return int((await self._ask(TRANSACTION_KEY, request, AddOffsetsToTxnResponse, 3)).error_code)

    async def _commit_offsets(self, attempt: Attempt) -> int:
        job = self._job
        place = TxnOffsetCommitRequestPartition(job.source, attempt.following)
        request = TxnOffsetCommitRequest(
            job.transactional_id, job.group, *self._known, topics=[TxnOffsetCommitRequestTopic(job.topic, [place])]
        )
        told = await self._ask(GROUP_KEY, request, TxnOffsetCommitResponse, self._versions.commit)
        return int(told.topics[0].partitions[0].error_code)

    async def _ask_for_end(self, commits: bool) -> int:
        request = EndTxnRequest(self._job.transactional_id, *self._known, committed=commits)
        told = await self._ask(TRANSACTION_KEY, request, EndTxnResponse, self._versions.end)
        if not told.error_code and not self._versions.adds:
            self._go_on_as(told.producer_id, told.producer_epoch)
        return int(told.error_code)


def _worst(codes: Any) -> int:
    return next(filter(None, map(int, codes)), 0)
