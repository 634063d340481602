"""Which metadata.version brought which record, so that an old node never meets one that it cannot read.

Nodes are let in only if they read the finalized level, and the controller writes nothing that the level does not have. So
whoever adds a kind of record, or a field to one, gives it the level of the version that brings it; a test fails until then.
"""

from collections.abc import Iterable, Mapping

from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.metadata.families.family import RecordLevel
from ottla.quorum.metadata.families.table import KINDS
from ottla.runtime.errors import ErrorCode, KafkaError

METADATA_VERSION = "metadata.version"


# 25 is the lowest level there is (4.0-IV3): everything below was there from the beginning.
_BESIDE_FAMILIES: Mapping[str, RecordLevel] = {
    "topic": RecordLevel(25, 2),
    "remove_topic": RecordLevel(25, 1),
    # Their last two fields, and clear_elr: with eligible.leader.replicas.version 1, which who does not know them does not read.
    "partition": RecordLevel(25, 13),
    "partition_change": RecordLevel(25, 11),
    "clear_elr": RecordLevel(25, 1),
    "no_op": RecordLevel(25, 0),
    "begin_transaction": RecordLevel(25, 1),
    "end_transaction": RecordLevel(25, 0),
    "abort_transaction": RecordLevel(25, 1),
}


def record_levels() -> dict[str, RecordLevel]:
    """The levels of every kind of record: those of the record families stand in their table."""
    return {**{name: kind.level for name, (_, kind) in KINDS.items()}, **_BESIDE_FAMILIES}


def _level_of(kind: str) -> RecordLevel:
    return _BESIDE_FAMILIES.get(kind) or KINDS[kind][1].level


def check_records(records: Iterable[Record], level: int) -> None:
    """Raises KafkaError (UNSUPPORTED_VERSION) for a record that nodes of ``level`` need not be able to read."""
    for record in records:
        kind = record.WhichOneof("body")
        known = _level_of(kind) if kind is not None else RecordLevel(0, 0)
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
    for kind, known in record_levels().items():
        if any(level < first <= current for first in (known.first, *known.later.values())):
            return f"{kind} records of a level above {level}"
    return None
