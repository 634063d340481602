"""A producer with several batches in flight, as the Java client's is: it keeps their order and numbers across every failure.

A broker that restarts knows of each producer the last batch in its newest snapshot, and what came behind it: Kafka's snapshots hold
no more. Who repeats an older one then is refused for good (OUT_OF_ORDER_SEQUENCE_NUMBER), and as the Java client does gives up what
is open, of which nobody knows whether it was written, and begins anew as another producer.
"""

import asyncio
from collections import deque
from contextlib import suppress

from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.records import encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import REQUEST_TIMEOUT_S, Unreachable
from ottla.testing.simulation.pipelined_connection import PipelinedConnection
from ottla.testing.simulation.workload import PRODUCE_VERSION, RETRIABLE, RETRY_S, BrokenPromise, SimulatedProducer

IN_FLIGHT_MAX = 5
REFUSED_S = 3.0  # a leader that was replaced and does not know it yet refuses too, for as long as a session


class PipelinedProducer(SimulatedProducer):
    """Up to five batches that are not acknowledged, all of them sent. After a failure it waits for what else is in flight, and
    sends what is not acknowledged again, in its order, each with its sequence."""

    _due_s = 0.0
    _first = 0  # the number that has sequence 0
    _refused_since_s = -1.0
    _oldest: "asyncio.Future[ProduceResponse] | None" = None  # of those in flight, and since when it is
    _oldest_since_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        await self._take_producer_id()
        unacknowledged: dict[int, bytes] = {}
        while True:
            if 0 <= self._refused_since_s < asyncio.get_running_loop().time() - REFUSED_S:
                await self._begin_anew(unacknowledged)
            with suppress(Unreachable):
                await self._pump(await self._find_leader(), unacknowledged)
            self._leader = None
            await asyncio.sleep(RETRY_S)

    async def _begin_anew(self, unacknowledged: dict[int, bytes]) -> None:
        self.history.given_up += [number + each for number in unacknowledged for each in range(self._batch)]
        unacknowledged.clear()
        self._first, self._refused_since_s, self._producer_id = self.history.sent, -1.0, -1
        await self._take_producer_id()

    async def _pump(self, leader: tuple[str, int], unacknowledged: dict[int, bytes]) -> None:
        """On one connection, until something fails and nothing is in flight any more."""
        connection = await PipelinedConnection.open(*leader)
        try:
            flying = deque((number, self._sent(connection, data)) for number, data in unacknowledged.items())
            failed, now_s = False, asyncio.get_running_loop().time
            while flying or not failed:
                if not failed and now_s() >= self._due_s and self._may_send(unacknowledged):
                    self._due_s = now_s() + self._interval_s
                    number, data = self._next_batch()
                    unacknowledged[number] = data
                    flying.append((number, self._sent(connection, data)))
                await self._wait(flying, full=failed or not self._may_send(unacknowledged))
                while flying and flying[0][1].done():
                    number, answer = flying.popleft()
                    failed |= not self._settled(number, answer.result(), unacknowledged)
        finally:
            connection.close()

    def _may_send(self, unacknowledged: dict[int, bytes]) -> bool:
        """The broker remembers the last five batches of a producer: no more may lie between the oldest open one and the next."""
        return not unacknowledged or self.history.sent - min(unacknowledged) < IN_FLIGHT_MAX * self._batch

    async def _wait(self, flying: "deque[tuple[int, asyncio.Future[ProduceResponse]]]", *, full: bool) -> None:
        """Until the next batch is due, or the oldest is answered. ``full``: no batch is, before that."""
        now_s = asyncio.get_running_loop().time
        due_s = max(0.001, self._due_s - now_s())
        if not flying:
            await asyncio.sleep(due_s)
            return
        oldest = flying[0][1]
        if oldest is not self._oldest:
            self._oldest, self._oldest_since_s = oldest, now_s()
        patience_s = self._oldest_since_s + REQUEST_TIMEOUT_S - now_s()
        done, _ = await asyncio.wait([oldest], timeout=max(0.001, patience_s if full else min(due_s, patience_s)))
        # A machine that lost its power says nothing, and nothing more is sent to it that it could refuse.
        if not done and now_s() >= self._oldest_since_s + REQUEST_TIMEOUT_S:
            raise Unreachable("no answer")

    def _next_batch(self) -> tuple[int, bytes]:
        number = self.history.sent
        self.history.sent += self._batch
        records = [self.history.record(number + each, each) for each in range(self._batch)]
        sequence = number - self._first
        return number, bytes(
            encode_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        )

    def _sent(self, connection: PipelinedConnection, data: bytes) -> "asyncio.Future[ProduceResponse]":
        partition = PartitionProduceData(index=self.history.partition, records=data)
        topic = TopicProduceData(name=self.history.topic, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])
        return connection.send(request, ProduceResponse, PRODUCE_VERSION)

    def _settled(self, number: int, answer: ProduceResponse, unacknowledged: dict[int, bytes]) -> bool:
        """False when the batch is to be sent again."""
        partition = answer.responses[0].partition_responses[0]
        if number == next(iter(unacknowledged)):
            refused = partition.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if not refused or self._refused_since_s < 0:
                self._refused_since_s = asyncio.get_running_loop().time() if refused else -1.0
        if partition.error_code == ErrorCode.NONE:
            del unacknowledged[number]
            self._note(number, partition.base_offset)
            return True
        if partition.error_code in RETRIABLE:
            return False
        error = ErrorCode(partition.error_code).name
        raise BrokenPromise(f"produce to {self.history.topic}-{self.history.partition}: {error}")
