"""A consumer at read_committed of the copiers' topic, as clients are: it drops what the broker says was aborted, marker by marker."""

import asyncio
from random import Random

from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.log.batch import headers
from ottla.log.records import decode_records, read_end_marker
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.consumers import Leader
from ottla.testing.simulation.copies import FENCED, WHOLE, Copied, Copies
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.workload import FETCH_VERSION, RETRIABLE, BrokenPromise

BYTES = (90, 4 << 20)
POLL_S = (0.05, 0.3)
READ_COMMITTED = 1


class CommittedReader:
    """Of one partition. ``read`` so far."""

    def __init__(self, run: Run, copies: Copies, index: int, rng: Random) -> None:
        self.read: list[Copied] = []
        self.position = 0
        self._run, self._copies, self._index, self._rng = run, copies, index, rng
        self._client: Client = run.client()
        self._leader: Leader | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._rng.uniform(*POLL_S))

    async def step(self) -> None:
        """One fetch, of few bytes or of many."""
        topic = self._copies.topic
        try:
            if self._leader is None:
                self._leader = await self._find_leader()
            where, epoch = self._leader
            wanted = FetchPartition(self._index, epoch, self.position, partition_max_bytes=self._bytes())
            topics = [FetchTopic(topic=topic, partitions=[wanted])]
            request = FetchRequest(max_wait_ms=0, max_bytes=4 << 20, isolation_level=READ_COMMITTED, topics=topics)
            answer = await self._client.call(where, request, FetchResponse, FETCH_VERSION)
        except Unreachable:
            self._leader = None
            return
        data = answer.responses[0].partitions[0]
        if self._copies.is_old(topic, self._index, epoch) or data.error_code in RETRIABLE:
            self._leader = None
            return
        if data.error_code:
            raise BrokenPromise(f"fetch of {topic}-{self._index}: {ErrorCode(data.error_code).name}")
        self._take(data)

    async def _find_leader(self) -> Leader:
        topic, brokers = await self._client.topic(self._copies.topic)
        # A broker that has not heard of the topic yet names no partitions of it.
        found = next((each for each in topic.partitions if each.partition_index == self._index), None)
        if found is None or found.leader_id not in brokers:
            raise Unreachable("nobody leads")
        return Leader(brokers[found.leader_id], found.leader_epoch)

    def _bytes(self) -> int:
        return self._rng.choice(BYTES)

    def _take(self, data: PartitionData) -> None:
        story = f"{self._copies.topic}-{self._index} from {self.position}"
        self._copies.check_stable(self._index, data.last_stable_offset, story)
        aborted = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset)
        dropped: set[int] = set()
        view = memoryview(data.records or b"")
        for at, header in headers(view):
            while aborted and aborted[0].first_offset <= header.last_offset:
                dropped.add(aborted.pop(0).producer_id)
            if header.last_offset < self.position:
                continue
            if header.last_offset >= data.last_stable_offset:
                raise BrokenPromise(f"{story}: given {header.last_offset}, it is stable to {data.last_stable_offset}")
            self.position = header.next_offset
            if header.is_control:
                marker = read_end_marker(view, header, at)
                if marker is not None and not marker.committed:
                    dropped.discard(header.producer_id)
            elif header.producer_id not in dropped:
                self._note([Copied.of(each.offset, each.value) for each in decode_records(view, header, position=at)])

    def _note(self, found: list[Copied]) -> None:
        for each in found:
            attempt = self._copies.attempts[each.attempt]
            if not attempt.ended.get(self._index, attempt.may_commit):
                self._run.invariants.violated(
                    FENCED, f"{self._copies.topic}-{self._index}: {each} is given, not committed"
                )
        self.read += found

    def check(self) -> None:
        """At rest, when it has read all."""
        due = list(self._copies.in_order(self._index))
        if self.read != due:
            odd = sorted(set(self.read) ^ set(due)) or "their order"
            self._run.invariants.violated(
                WHOLE, f"{self._copies.topic}-{self._index}: a consumer was given otherwise: {odd}"
            )
