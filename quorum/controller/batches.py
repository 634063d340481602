"""Cuts the records of a decision into batches of the metadata log: each is committed whole or not at all."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import Record
from ottla.runtime.errors import ErrorCode, KafkaError


class Batch(NamedTuple):
    """Records and their bytes."""

    records: list[Record]
    encoded: list[bytes]


def into_batches(
    records: Sequence[Record], *, atomic: bool, records_max: int, bytes_max: int, name: str
) -> list[Batch]:
    """Batches of at most ``records_max`` records and about ``bytes_max`` bytes.

    What is ``atomic`` and does not fit one batch becomes a transaction called ``name``: readers apply nothing of it before
    its end, and the next controller aborts it if this one does not get there. Raises KafkaError (POLICY_VIOLATION) for
    a record that is too large for any batch.
    """
    pairs = [(record, record.SerializeToString()) for record in records]
    batches = _cut(pairs, records_max, bytes_max)
    if not atomic or len(batches) <= 1:
        return batches
    begin = Record(begin_transaction=pb.BeginTransaction(name=name))
    end = Record(end_transaction=pb.EndTransaction())
    marks = [(each, each.SerializeToString()) for each in (begin, end)]
    return _cut([marks[0], *pairs, marks[1]], records_max, bytes_max)


def _cut(pairs: Sequence[tuple[Record, bytes]], records_max: int, bytes_max: int) -> list[Batch]:
    batches: list[Batch] = []
    room = 0
    for record, data in pairs:
        if len(data) > bytes_max:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"a metadata record of {len(data)} bytes is too large")
        if not batches or len(batches[-1].records) == records_max or len(data) > room:
            batches.append(Batch([], []))
            room = bytes_max
        batches[-1].records.append(record)
        batches[-1].encoded.append(data)
        room -= len(data)
    return batches
