"""Which metadata.version brought which record, so that an old node never meets one that it cannot read.

Nodes are let in only if they read the finalized level, and the controller writes nothing that the level does not have. So
whoever adds a kind of record, or a field to one, gives it the level of the version that brings it; a test fails until then.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.quorum.controller.decisions.decision import Record
from ottla.runtime.errors import ErrorCode, KafkaError

METADATA_VERSION = "metadata.version"

_NOTHING: Mapping[int, int] = {}


class RecordLevel(NamedTuple):
    """``first``: the level of the kind. ``fields``: the highest field number it had then. ``later``: the levels of the
    fields that came afterwards, by number."""

    first: int
    fields: int
    later: Mapping[int, int] = _NOTHING


# 25 is the lowest level there is (4.0-IV3): everything below was there from the beginning.
RECORD_LEVELS: Mapping[str, RecordLevel] = {
    "register_broker": RecordLevel(25, 9),
    "unregister_broker": RecordLevel(25, 2),
    "topic": RecordLevel(25, 2),
    "partition": RecordLevel(25, 11),
    "partition_change": RecordLevel(25, 9),
    "config": RecordLevel(25, 4),
    "broker_registration_change": RecordLevel(25, 5),
    "remove_topic": RecordLevel(25, 1),
    "feature_level": RecordLevel(25, 2),
    "producer_ids": RecordLevel(25, 3),
    "no_op": RecordLevel(25, 0),
    "register_controller": RecordLevel(25, 5),
    "unregister_controller": RecordLevel(25, 1),
    "begin_transaction": RecordLevel(25, 1),
    "end_transaction": RecordLevel(25, 0),
    "abort_transaction": RecordLevel(25, 1),
}


def check_records(records: Iterable[Record], level: int) -> None:
    """Raises KafkaError (UNSUPPORTED_VERSION) for a record that nodes of ``level`` need not be able to read."""
    for record in records:
        kind = record.WhichOneof("body")
        known = RECORD_LEVELS[kind] if kind is not None else RecordLevel(0, 0)
        if level < known.first:
            raise _needs(f"{kind} records", known.first, level)
        if known.later:
            _check_fields(record, str(kind), known, level)


def _check_fields(record: Record, kind: str, known: RecordLevel, level: int) -> None:
    for field, _ in getattr(record, kind).ListFields():
        if level < (first := known.later.get(field.number, 0)):
            raise _needs(f"the field {field.name} of {kind} records", first, level)


def _needs(what: str, first: int, level: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{what} came with {METADATA_VERSION} {first} and the cluster is at {level}: "
        f"upgrade every node, then ottla features upgrade --feature {METADATA_VERSION}={first}",
    )


def written_above(level: int, current: int) -> str | None:
    """What a log that was at ``current`` may hold and nodes of ``level`` cannot read; None: nothing."""
    for kind, known in RECORD_LEVELS.items():
        if any(level < first <= current for first in (known.first, *known.later.values())):
            return f"{kind} records of a level above {level}"
    return None
