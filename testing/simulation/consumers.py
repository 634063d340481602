"""Simulated consumers that read while faults happen, and hold every answer against what was committed by then.

What a consumer may rely on: it is given committed records and no others, each batch as it was committed, in order, none left out
(of a compacted topic: none but those that a later one of their key hides), and from a leader that it may still ask nothing is
ever missing that it has read before.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from itertools import zip_longest
from random import Random
from typing import Any, NamedTuple

from ottla.broker.replication.decisions.fetch_session import FINAL_EPOCH, NO_SESSION
from ottla.broker.replication.decisions.follower_session import SESSION_ERRORS
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.broker.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.invariants import Invariants
from ottla.testing.simulation.reading import check_answer
from ottla.testing.simulation.workload import (
    EARLIEST,
    FETCH_BYTES,
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    RETRIABLE,
    RETRY_S,
    BrokenPromise,
)

LATEST = -1
MAX_WAIT_MS = 200

Key = tuple[str, int]


class Leader(NamedTuple):
    """Where a partition is led, in which leader epoch."""

    address: tuple[str, int]
    epoch: int


class Leaders:
    """What the consumers of a run know of leaders. As clients do, they never go back to an older epoch."""

    def __init__(self, client: Client, topics: Mapping[str, int]) -> None:
        self._client = client
        self._topics = topics
        self._known: dict[Key, Leader] = {}
        self._outdated = True

    def of(self, key: Key) -> Leader | None:
        return self._known.get(key)

    def outdated(self) -> None:
        """An answer said so, or none came."""
        self._outdated = True

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._outdated:
                with suppress(Unreachable):
                    self._outdated = not await self._ask()
            await asyncio.sleep(RETRY_S)

    async def _ask(self) -> bool:
        """Whether every partition has a leader. A broker that has yet to hear of a topic names none of its partitions."""
        all_led = True
        for name, partitions in self._topics.items():
            topic, brokers = await self._client.topic(name)
            all_led &= len(topic.partitions) >= partitions
            for each in topic.partitions:
                known, address = self._known.get((name, each.partition_index)), brokers.get(each.leader_id)
                all_led &= address is not None
                if address is not None and (known is None or each.leader_epoch >= known.epoch):
                    self._known[name, each.partition_index] = Leader(address, each.leader_epoch)
        return all_led


class Consumer:
    """Reads partitions from their beginning on, each from its leader, as long as it runs. Counts what it was given."""

    def __init__(
        self,
        clients: Callable[[], Client],
        invariants: Invariants,
        leaders: Leaders,
        keys: Iterable[Key],
        *,
        with_session: bool,
        read_committed: bool = False,
        oldest_go: Iterable[str] = (),
        rack: str = "",
    ) -> None:
        """``oldest_go``: topics that may forget what was not read yet."""
        self.positions: dict[Key, int] = dict.fromkeys(keys, 0)
        self.numbers: dict[Key, list[tuple[int, int]]] = {key: [] for key in self.positions}
        self.answers = 0
        self._clients = clients
        self._invariants = invariants
        self._leaders = leaders
        self._with_session = with_session
        self._read_committed = read_committed
        self._oldest_go = tuple(oldest_go)
        self._rack = rack

    def check_reads(self, found: Mapping[Key, list[tuple[int, int]]]) -> None:
        """Raises BrokenPromise: what it was given while all that happened is what stands there in the end, nothing less and nothing
        else. ``found``: (number, offset) of all records of each partition."""
        for key, numbers in self.numbers.items():
            there = [each for each in found[key] if each[1] < self.positions[key]]
            if numbers != there:
                odd = next(((mine, now) for mine, now in zip_longest(numbers, there) if mine != now), None)
                raise BrokenPromise(
                    f"{key}: a consumer was given {odd and odd[0]} where {odd and odd[1]} stands in the end"
                )

    def tasks(self, brokers: Iterable[tuple[str, int]]) -> list[Coroutine[Any, Any, None]]:
        """One for each broker, on a connection of its own."""
        return [self._read_from(broker) for broker in brokers]

    async def _read_from(self, broker: tuple[str, int]) -> None:
        client, session = self._clients(), _Session()
        while True:
            wanted = self._asked_of(broker)
            request = session.next_request(wanted, self._read_committed, self._rack, incremental=self._with_session)
            if request is None:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                answer = await client.call(broker, request, FetchResponse, FETCH_VERSION)
            except Unreachable:
                session.reset()
                self._leaders.outdated()
                await asyncio.sleep(RETRY_S)
                continue
            if answer.error_code in SESSION_ERRORS:
                session.reset()
                continue
            if answer.error_code != ErrorCode.NONE:
                raise BrokenPromise(f"fetch: {ErrorCode(answer.error_code).name}")
            session.answered(answer.session_id)
            self.answers += 1
            if not all([await self._take(client, broker, wanted, topic.topic, each) for topic in answer.responses for each in topic.partitions]):  # fmt: skip
                self._leaders.outdated()
                await asyncio.sleep(RETRY_S)

    def _asked_of(self, broker: tuple[str, int]) -> dict[Key, tuple[int, int]]:
        """(offset, leader epoch) to ask this broker for: of each partition that it leads."""
        found = {}
        for key, position in self.positions.items():
            leader = self._leaders.of(key)
            if leader is not None and leader.address == broker:
                found[key] = (position, leader.epoch)
        return found

    async def _take(
        self,
        client: Client,
        broker: tuple[str, int],
        wanted: Mapping[Key, tuple[int, int]],
        topic: str,
        data: PartitionData,
    ) -> bool:
        """One partition's part of an answer; False when its leader may be another by now."""
        key = (topic, data.partition_index)
        position, epoch = wanted[key]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and topic in self._oldest_go:
            start = await list_offset(client, Leader(broker, epoch), key, EARLIEST)
            if start is not None and start.error_code == ErrorCode.NONE:
                self.positions[key] = max(position, start.offset)
            return start is not None
        if data.error_code in RETRIABLE:
            return False
        if data.error_code != ErrorCode.NONE:
            raise BrokenPromise(f"fetch of {topic}-{key[1]} from {position}: {ErrorCode(data.error_code).name}")
        following, numbers = check_answer(self._invariants, topic, position, data)
        if self.positions[key] == position:  # else another broker was asked meanwhile, and has answered
            self.positions[key] = following
            self.numbers[key] += numbers
        return True


class _Session:
    """The client's end of an incremental fetch session (KIP-227)."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = 0
        self._told: dict[Key, tuple[int, int]] = {}

    def next_request(
        self, wanted: Mapping[Key, tuple[int, int]], read_committed: bool, rack: str, *, incremental: bool
    ) -> FetchRequest | None:
        """Names what changed since the last one; None when there is nothing to ask."""
        if not wanted and not self._told:
            return None
        changed = {key: place for key, place in wanted.items() if self._told.get(key) != place}
        gone = [key for key in self._told if key not in wanted]
        if self.id == NO_SESSION:
            changed, gone = dict(wanted), []
            if not wanted:
                self._told = {}
                return None
        self._told = dict(wanted)
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(read_committed),
            session_id=self.id,
            session_epoch=self.epoch if incremental else FINAL_EPOCH,
            topics=_topics(changed),
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[index]) for topic, index in gone],
            rack_id=rack,
        )

    def answered(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            self.reset()
        elif self.id == NO_SESSION:
            self.id, self.epoch = session_id, 1
        else:
            self.epoch += 1

    def reset(self) -> None:
        self.id, self.epoch, self._told = NO_SESSION, 0, {}


def _topics(wanted: Mapping[Key, tuple[int, int]]) -> list[FetchTopic]:
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, index), (offset, epoch) in wanted.items():
        topics.setdefault(topic, []).append(
            FetchPartition(
                partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
            )
        )
    return [FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


async def list_offset(client: Client, leader: Leader, key: Key, timestamp: int) -> ListOffsetsPartitionResponse | None:
    """ListOffsets of one partition; None when the broker could not be asked."""
    asked = ListOffsetsPartition(partition_index=key[1], current_leader_epoch=leader.epoch, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(key[0], [asked])])
    try:
        answer = await client.call(leader.address, request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
    except Unreachable:
        return None
    return answer.topics[0].partitions[0]


class Searcher:
    """Looks for what a consumer has read: again at its offset, and by its time. Its records are of rising numbers, and so times."""

    PAUSE_S = 0.08

    def __init__(
        self,
        client: Client,
        invariants: Invariants,
        leaders: Leaders,
        consumer: Consumer,
        keys: Iterable[Key],
        rng: Random,
    ) -> None:
        self.found = 0
        self._client = client
        self._invariants = invariants
        self._leaders = leaders
        self._consumer = consumer
        self._keys = list(keys)
        self._rng = rng

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.PAUSE_S)
            key = self._rng.choice(self._keys)
            leader, numbers = self._leaders.of(key), self._consumer.numbers[key]
            if leader is None or not numbers:
                continue
            number, offset = self._rng.choice(numbers)
            reached = numbers[-1][1] + 1
            look = self._rng.choice((self._by_offset, self._by_time, self._latest))
            try:
                fine = await look(key, leader, number, offset, reached)
            except Unreachable:
                fine = False
            if fine:
                self.found += 1
            else:
                self._leaders.outdated()

    async def _by_offset(self, key: Key, leader: Leader, number: int, offset: int, reached: int) -> bool:
        request = FetchRequest(max_bytes=FETCH_BYTES, topics=_topics({key: (offset, leader.epoch)}))
        answer = await self._client.call(leader.address, request, FetchResponse, FETCH_VERSION)
        data = answer.responses[0].partitions[0]
        if data.error_code in RETRIABLE:
            return False
        if data.error_code != ErrorCode.NONE:
            raise BrokenPromise(f"fetch of {key} from {offset}, again: {ErrorCode(data.error_code).name}")
        _, numbers = check_answer(self._invariants, key[0], offset, data)
        if not numbers and offset < data.high_watermark:
            raise BrokenPromise(f"fetch of {key} from {offset}, again: nothing, below {data.high_watermark}")
        if numbers and numbers[0] != (number, offset):
            raise BrokenPromise(f"fetch of {key}: at {offset} was {number}, now {numbers[0]} is there")
        return True

    async def _by_time(self, key: Key, leader: Leader, number: int, offset: int, reached: int) -> bool:
        answer = await list_offset(self._client, leader, key, number + 1)
        return self._is_told(answer, key, offset, offset)

    async def _latest(self, key: Key, leader: Leader, number: int, offset: int, reached: int) -> bool:
        answer = await list_offset(self._client, leader, key, LATEST)
        view = self._invariants.metadata.topics_by_name[key[0]]
        return self._is_told(answer, key, reached, self._invariants.committed_end(view.id, key[1]))

    def _is_told(self, answer: ListOffsetsPartitionResponse | None, key: Key, least: int, most: int) -> bool:
        if answer is None or answer.error_code in RETRIABLE:
            return False
        if answer.error_code != ErrorCode.NONE or not least <= answer.offset <= most:
            error = ErrorCode(answer.error_code).name
            raise BrokenPromise(f"ListOffsets of {key}: {error} {answer.offset}, not within {least}..{most}")
        return True
