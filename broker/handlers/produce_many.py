"""A Produce of any shape: several partitions, batches that a thread prepares before they are written, or that begin a transaction."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.network.request import RequestContext
from ottla.broker.replication.acks import ACKS_ALL, ACKS_NONE, await_acks, is_done
from ottla.broker.replication.appending import append, append_prepared, must_prepare, prepare
from ottla.broker.replication.decisions.verification import Client, produce_error, producer_of
from ottla.broker.replication.intake import Prepared
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.purgatory import ParkedRequest
from ottla.broker.replication.verified_appends import append_verified
from ottla.broker.wire.produce_fast import PartitionAck, Partitions, Topic
from ottla.log.batch import BatchHeader
from ottla.log.compression import DecompressionError
from ottla.log.producers.verification import UnverifiedError
from ottla.log.results import AppendInfo
from ottla.runtime.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.handlers.produce import ProduceHandler

logger = logging.getLogger(__name__)

_UNKNOWN: PartitionAck = (-1, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, -1, (), None, None)


class _Part(NamedTuple):
    """One partition of the request and where its answer goes."""

    topic: Topic
    partition_index: int
    acknowledged: list[PartitionAck]
    place: int


class ProduceMany:
    """One request: answered when all its batches are written, and with acks=all when all are committed."""

    def __init__(
        self,
        handler: "ProduceHandler",
        request: RequestContext,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None,
    ) -> None:
        self._handler = handler
        self._request = request
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        self._answer: list[tuple[Topic, list[PartitionAck]]] = []
        self._awaited: list[_Part] = []
        self._parked = ParkedRequest(self._acknowledge)
        self._unwritten = 1  # batches not written yet, and the walk over the request itself

    def run(self, topics: list[tuple[Topic, Partitions]]) -> None:
        for topic, partitions in topics:
            acknowledged: list[PartitionAck] = []
            self._answer.append((topic, acknowledged))
            for index, records in partitions:
                acknowledged.append(_UNKNOWN)
                self._produce(_Part(topic, index, acknowledged, len(acknowledged) - 1), records)
        self._written()

    def run_unverified(
        self, topic: Topic, index: int, partition: Partition, records: memoryview, header: BatchHeader
    ) -> None:
        """Of one partition, whose leader just met the beginning of a transaction."""
        acknowledged = [_UNKNOWN]
        self._answer.append((topic, acknowledged))
        self._verify(_Part(topic, index, acknowledged, 0), partition, bytearray(records), header)
        self._written()

    def _produce(self, part: _Part, records: memoryview | None) -> None:
        handler, acks = self._handler, self._acks
        try:
            partition, records = handler.find(self._request, acks, part.topic, part.partition_index, records)
        except KafkaError as error:
            self._refused(part, error)
            return
        if not must_prepare(partition, records):
            try:
                self._appended(part, partition, append(partition, records, acks, handler.wall_ms(), handler.now_ms()))
                return
            except UnverifiedError as error:
                self._verify(part, partition, bytearray(records), error.header)
                return
            except KafkaError as error:
                if not (isinstance(error, DecompressionError) and error.is_size):
                    self._refused(part, error)
                    return
        self._prepare(part, partition, records)

    def _prepare(self, part: _Part, partition: Partition, records: memoryview) -> None:
        handler = self._handler
        self._unwritten += 1
        self._request.connection.hold(len(records))
        prepare(partition, records, handler.wall_ms(), partial(self._ready, part, partition, len(records)))

    def _ready(self, part: _Part, partition: Partition, held_bytes: int, outcome: Prepared | KafkaError) -> None:
        """It is the prepared batch's turn; what was true when it came may not be any more, so all is asked again."""
        handler = self._handler
        self._request.connection.hold(-held_bytes)
        try:
            if isinstance(outcome, KafkaError):
                raise outcome
            batch, header = outcome
            info = append_prepared(partition, batch, header, self._acks, handler.wall_ms(), handler.now_ms())
            self._appended(part, partition, info)
        except UnverifiedError as error:
            self._verify(part, partition, batch, error.header, prepared=True)
        except KafkaError as error:
            self._refused(part, error)
        except Exception as error:  # noqa: BLE001 - `_give_up` tells of it
            self._give_up(error)
            return
        self._written()

    # A batch that may begin a transaction in its partition waits for the transaction's coordinator.

    def _verify(
        self, part: _Part, partition: Partition, batch: bytearray, header: BatchHeader, *, prepared: bool = False
    ) -> None:
        handler = self._handler
        self._unwritten += 1
        self._request.connection.hold(len(batch))
        then = partial(self._verified, part, partition, batch, header, prepared)
        handler.verifications.begin(partition, header, self._transactional_id, producer_of(self._request.version), then)

    def _verified(
        self,
        part: _Part,
        partition: Partition,
        batch: bytearray,
        header: BatchHeader,
        prepared: bool,
        guard: int,
        error: ErrorCode,
    ) -> None:
        handler = self._handler
        self._request.connection.hold(-len(batch))
        try:
            if error:
                raise _not_vouched(error, producer_of(self._request.version))
            wall_ms, now_ms = handler.wall_ms(), handler.now_ms()
            info = append_verified(partition, batch, header, guard, self._acks, wall_ms, now_ms, prepared=prepared)
            self._appended(part, partition, info)
        except KafkaError as failure:
            self._refused(part, failure)
        except Exception as error:  # noqa: BLE001 - `_give_up` tells of it
            self._give_up(error)
            return
        self._written()

    def _give_up(self, error: Exception) -> None:
        """Ends the connection, as a mistake does before anything waits: what called back serves others as well."""
        logger.error("A batch that had waited could not be written, which is our mistake", exc_info=error)
        self._request.fail_connection("its request could not be handled")

    def _refused(self, part: _Part, error: KafkaError) -> None:
        part.acknowledged[part.place] = self._handler.refusal(part.topic, part.partition_index, error)

    def _appended(self, part: _Part, partition: Partition, info: AppendInfo) -> None:
        traffic = self._handler.traffic
        traffic.bytes_in += info.size_bytes
        traffic.messages_in += info.last_offset - info.first_offset + 1
        part.acknowledged[part.place] = (
            part.partition_index, ErrorCode.NONE, info.first_offset, info.log_append_time_ms, info.log_start_offset, (), None, None
        )  # fmt: skip
        if self._acks != ACKS_NONE and not is_done(partition, self._acks, info):
            self._awaited.append(part)
            await_acks(partition, self._acks, info, self._parked)

    def _written(self) -> None:
        self._unwritten -= 1
        if self._unwritten:
            return
        if self._awaited:
            self._handler.park(self._request, self._parked, self._timeout_ms)
        else:
            self._parked.drop()
            self._handler.answer(self._request, self._acks, self._answer)

    def _acknowledge(self, errors: Sequence[int]) -> None:
        for part, error in zip(self._awaited, errors, strict=True):
            if error:
                ack = part.acknowledged[part.place]
                part.acknowledged[part.place] = self._handler.given_up(part.topic, ack, error)
        self._handler.answer(self._request, ACKS_ALL, self._answer)


def _not_vouched(error: ErrorCode, client: Client) -> KafkaError:
    return KafkaError(produce_error(error, client), f"the transaction's coordinator says {error.name}")
