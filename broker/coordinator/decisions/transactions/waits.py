"""Requests that wait for a transaction to be over, instead of being sent away to come again.

Kafka answers CONCURRENT_TRANSACTIONS, and its clients ask again 20 to 100 milliseconds later; it is mostly over in two.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.coordinator.decisions.effects import Effects

Again = Callable[[bool], None]
"""Called once, with whether its patience was up."""


class _Wait(NamedTuple):
    until_ms: int
    again: Again


class Waits:
    """By transactional id, in the order of coming."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._waiting: dict[str, list[_Wait]] = {}
        self._due_ms: dict[str, int] = {}
        """When the first of them has no more patience: a broker has less than a client."""

    def wait(self, transactional_id: str, until_ms: int, again: Again) -> None:
        waiting = self._waiting.setdefault(transactional_id, [])
        waiting.append(_Wait(until_ms, again))
        if until_ms < self._due_ms.get(transactional_id, until_ms + 1):
            self._remind(transactional_id, until_ms)

    def _remind(self, transactional_id: str, until_ms: int) -> None:
        self._due_ms[transactional_id] = until_ms
        in_ms = until_ms - self._effects.clock_ms
        self._effects.remind(("wait", transactional_id), in_ms, lambda: self._expire(transactional_id))

    def _expire(self, transactional_id: str) -> None:
        now_ms = self._effects.clock_ms
        waiting = self._taken(transactional_id) or []
        rest = [each for each in waiting if each.until_ms > now_ms]
        if rest:
            self._waiting[transactional_id] = rest
            self._remind(transactional_id, min(each.until_ms for each in rest))
        for each in waiting:
            if each.until_ms <= now_ms:
                each.again(True)

    def _taken(self, transactional_id: str) -> list[_Wait] | None:
        self._due_ms.pop(transactional_id, None)
        return self._waiting.pop(transactional_id, None)

    def wake(self, transactional_id: str) -> None:
        """Something happened to it: each tries again, and may wait again."""
        waiting = self._taken(transactional_id)
        if waiting is not None:
            self._effects.forget(("wait", transactional_id))
            for each in waiting:
                each.again(False)

    def send_away(self, transactional_id: str) -> None:
        """What they waited for does not come."""
        waiting = self._taken(transactional_id)
        self._effects.forget(("wait", transactional_id))
        for each in waiting or ():
            each.again(True)

    def end(self) -> None:
        """Nobody waits any longer."""
        for transactional_id in list(self._waiting):
            self.send_away(transactional_id)
