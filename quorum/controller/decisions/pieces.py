"""A request that names very many partitions: decided on some at a time, and others have their turn in between.

How far it has come is no more than a shortcut of one leadership: when that ends, whoever asked is told to ask the next controller.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import CHANGES_MAX

A = TypeVar("A")
R = TypeVar("R", bound=Message)

LOOKS_MAX = 1_000
"""Partitions judged in one piece, changed or not: up to 20 ms."""


class Progress(Generic[A, R]):
    """What lies ahead, and the answer as far as it is known."""

    def __init__(self, ahead: Iterator[A], response: R) -> None:
        self.ahead = ahead
        self.response = response
        self._topics: dict[str, Any] = {}
        self._seen: dict[tuple[str, int], None] = {}

    def is_first(self, partition: tuple[str, int]) -> bool:
        """Whether it was not asked about before."""
        known = len(self._seen)
        self._seen[partition] = None
        return len(self._seen) > known

    def results_of(self, topic: str) -> Any:
        """The answer's list of partitions of that topic."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = self.response.topics.add(name=topic)  # type: ignore[attr-defined]  # they all have
        return found.partitions


def next_piece(
    state: ControllerState,
    request: Message,
    begin: Callable[[], Progress[A, R]],
    decide: Callable[[Progress[A, R], A], Record | None],
) -> Decision[R]:
    """The next piece of what was asked, the first with ``begin``. ``decide`` notes the result of one partition.

    Another who asks the same begins anew: what was looked at for the first one may have changed before he asked. A request has a number
    of its own; only one of before there were such is known by what it says, which takes 45 ms of 2 MiB with each piece.
    """
    key = (request.DESCRIPTOR.name, state.request_id or request.SerializeToString())
    progress = state.under_way.pop(key, None) or begin()
    records: list[Record] = []
    for looks, asked in enumerate(progress.ahead, 1):
        record = decide(progress, asked)
        if record is not None:
            records.append(record)
        if len(records) == CHANGES_MAX or looks == LOOKS_MAX:
            state.under_way[key] = progress
            return Decision(progress.response, records, atomic=False, is_last=False)
    return Decision(progress.response, records, atomic=False)
