"""Short ways to tell a history."""

from typing import Any

from ottla.testing.checker import (
    Admin,
    Assigned,
    Commit,
    Get,
    Isolation,
    Kind,
    ListOffsets,
    Outcome,
    Produce,
    Read,
    Report,
    Transaction,
    check,
)
from ottla.testing.checker.operations import FOREVER, AnyOperation

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN
COMMITTED = Isolation.COMMITTED
TOPIC = "t"


def wrote(value: str, offset: int, begin: int, end: int = 0, **more: Any) -> Produce:
    """Acknowledged, one nanosecond after ``begin`` unless said."""
    told: dict[str, Any] = {"topic": TOPIC, "partition": 0, "outcome": OK, "process": "w", **more}
    return Produce(value=value, offset=offset, begin=begin, end=end or begin + 1, **told)


def tried(value: str, begin: int, outcome: Outcome = UNKNOWN, **more: Any) -> Produce:
    end = FOREVER if outcome is UNKNOWN else begin + 1
    told: dict[str, Any] = {"topic": TOPIC, "partition": 0, "process": "w", **more}
    return Produce(value=value, begin=begin, end=end, outcome=outcome, **told)


def records(*values: str | None, start: int = 0) -> list[tuple[int, str]]:
    """None: no record is at that offset."""
    return [(offset, value) for offset, value in enumerate(values, start) if value is not None]


def read(*values: str | None, begin: int, start: int = 0, **more: Any) -> Read:
    told: dict[str, Any] = {
        "topic": TOPIC,
        "partition": 0,
        "process": "r",
        "outcome": OK,
        "start": start,
        "next": start + len(values),
        "end": begin + 1,
        **more,
    }
    return Read(records=records(*values, start=start), begin=begin, **told)


def final(*values: str | None, start: int = 0, **more: Any) -> Read:
    return read(*values, begin=1000, start=start, final=True, **more)


def got(value: str | None, begin: int, end: int, key: str = "k") -> Get:
    return Get(topic=TOPIC, key=key, value=value, begin=begin, end=end, outcome=OK)


def asked(asked: str | int, offset: int, begin: int, **more: Any) -> ListOffsets:
    told: dict[str, Any] = {"topic": TOPIC, "partition": 0, "outcome": OK, "process": "l", "end": begin + 1, **more}
    return ListOffsets(asked=asked, offset=offset, begin=begin, **told)


def ended(transaction: str, action: str, begin: int, outcome: Outcome = OK) -> Transaction:
    return Transaction(transaction=transaction, action=action, begin=begin, end=begin + 1, outcome=outcome)


def given(process: str, begin: int) -> Assigned:
    return Assigned(process=process, group="g", topic=TOPIC, partition=0, begin=begin, end=begin, outcome=OK)


def committed(offset: int, begin: int, **more: Any) -> Commit:
    told: dict[str, Any] = {"group": "g", "topic": TOPIC, "partition": 0, "end": begin + 1, "outcome": OK, **more}
    return Commit(offset=offset, begin=begin, **told)


def admin(action: str, value: str | None, begin: int, end: int, outcome: Outcome = OK, **more: Any) -> Admin:
    return Admin(action=action, topic=TOPIC, value=value, begin=begin, end=end, outcome=outcome, **more)


def judged(*operations: AnyOperation) -> Report:
    return check(operations)


def kinds(*operations: AnyOperation) -> set[Kind]:
    return {each.kind for each in judged(*operations).anomalies}


def delivered(*pairs: tuple[int, str], begin: int, **more: Any) -> Read:
    """A read of records as they came, in whatever order."""
    told: dict[str, Any] = {"topic": TOPIC, "partition": 0, "process": "r", "outcome": OK, "end": begin + 1, **more}
    return Read(records=pairs, begin=begin, **told)
