"""DescribeProducers (61): who has written to partitions, and whose transactions are open there (KIP-664). Every replica answers for itself.

A partition may know a hundred thousand producers, and who looks for what hangs asks about all partitions of a broker. So the answer is
put together in pieces, of rows that are packed as the message has them (a test holds it against the generated one).
"""

from collections.abc import Generator
from itertools import islice
from struct import Struct
from typing import TypeVar

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import each_once, prepared_route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_producers_request import DescribeProducersRequest
from ottla.broker.wire.primitives import encode_compact_string, encode_varint
from ottla.log.producers.state import ProducerStateManager
from ottla.runtime.disk import Buffer
from ottla.runtime.errors import ErrorCode

ROWS_A_TURN = 1_000
"""Producers and partitions that are written down at once: a millisecond."""

_THROTTLE_MS = bytes(4)
_PARTITION = Struct(">ih")  # index, error
_PRODUCER = Struct(
    ">qiiqiqx"
)  # id, epoch, last sequence, last timestamp, coordinator's epoch, where its transaction begins
_NO_TAGS = b"\0"
_NOBODY = ProducerStateManager()

Told = TypeVar("Told")
Piecewise = Generator[None, None, Told]


_Asked = dict[str, dict[int, None]]
"""Partitions by topic."""


def routes(broker: BrokerContext) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, asked: _Asked) -> None:
        long_answers.give(request, _described(broker, request, asked))

    return [prepared_route("DescribeProducers", DescribeProducersRequest, _asked, answer)]


def _asked(body: DescribeProducersRequest) -> _Asked:
    return each_once(body.topics)


def _described(broker: BrokerContext, request: RequestContext, asked: _Asked) -> Pieces:
    written: list[Buffer] = []
    parts: list[Buffer] = [_THROTTLE_MS, encode_varint(len(asked) + 1)]
    count = 0
    for topic, indexes in asked.items():
        parts += (encode_compact_string(topic), encode_varint(len(indexes) + 1))
        for index in indexes:
            error, message, producers = _found(broker, topic, index)
            if error:
                request.count_errors((error,))
            rows = yield from _rows(producers)
            parts += (
                _PARTITION.pack(index, error),
                encode_compact_string(message),
                encode_varint(len(rows) // _PRODUCER.size + 1),
                rows,
                _NO_TAGS,
            )
            count += 1 + len(rows) // _PRODUCER.size
            if count >= ROWS_A_TURN:
                count = 0
                written.append(b"".join(parts))  # in the end there would be millions
                parts.clear()
                yield
        parts.append(_NO_TAGS)
    return [*written, b"".join([*parts, _NO_TAGS])]


def _found(broker: BrokerContext, topic: str, index: int) -> tuple[ErrorCode, str | None, ProducerStateManager]:
    partition = broker.replicas.partitions.get((topic, index))
    if partition is None:
        error = broker.replicas.missing_error(topic, index)
        return error, "no replica of the partition is here", _NOBODY
    if not partition.usable:
        return ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed", _NOBODY
    return ErrorCode.NONE, None, partition.log.producers


def _rows(producers: ProducerStateManager) -> Piecewise[bytes]:
    """Of those that are known yet when it is their turn."""
    rows = bytearray()
    ids = iter(producers.producer_ids)
    while some := list(islice(ids, ROWS_A_TURN)):
        for producer_id in some:
            entry = producers.entry(producer_id)
            if entry is not None:
                rows += _PRODUCER.pack(
                    producer_id,
                    entry.epoch,
                    entry.last_sequence,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.transaction_first_offset,
                )
        if len(some) == ROWS_A_TURN:
            yield
    return bytes(rows)
