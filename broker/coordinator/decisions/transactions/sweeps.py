"""What the coordinator does without being asked: it aborts what takes too long, and forgets what nobody uses."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from ottla.broker.coordinator.decisions.effects import Done, Effects, Record
from ottla.broker.coordinator.decisions.transactions import asking
from ottla.broker.coordinator.decisions.transactions.settings import TransactionSettings
from ottla.broker.coordinator.decisions.transactions.transaction import Transaction
from ottla.broker.coordinator.decisions.transactions.transaction_records import tombstone
from ottla.runtime.errors import ErrorCode
from ottla.runtime.printable import plain

LOOKED_AT_MAX = 250
"""Ids a turn of the loop."""
PIECE_BYTES = 64 << 10
"""Tombstones that are written together."""


class Book(Protocol):
    """What the shard has."""

    written: dict[str, Transaction]
    open: dict[str, float]

    def abort(self, transactional_id: str, told: Done) -> None: ...


class Sweeps:
    """Of one shard. One that is under way goes on."""

    def __init__(self, effects: Effects, settings: TransactionSettings, book: Book) -> None:
        self._effects = effects
        self._settings = settings
        self._book = book
        self.timeout_count = 0
        self._left: dict[str, Iterator[str]] = {}

    def abort_late(self) -> None:
        self._begin("late", self._book.open, self._abort_if_late)

    def expire(self) -> None:
        self._begin("expired", self._book.written, self._expire_some)

    def _begin(self, name: str, ids: Iterable[str], look: Callable[[list[str]], None]) -> None:
        if name not in self._left:
            self._left[name] = iter(list(ids))
            self._look_at_some(name, look)

    def _look_at_some(self, name: str, look: Callable[[list[str]], None]) -> None:
        some = list(islice(self._left[name], LOOKED_AT_MAX))
        if some:
            self._effects.soon(lambda: self._look_at_some(name, look))
            look(some)
        else:
            del self._left[name]

    def _abort_if_late(self, ids: list[str]) -> None:
        clock_ms = self._effects.clock_ms
        for each in ids:
            due_ms = self._book.open.get(each)
            if due_ms is not None and asking.is_late(due_ms, clock_ms):
                self._book.abort(each, partial(self._count, each, self._book.written[each]))

    def _count(self, transactional_id: str, aborted: Transaction, error: ErrorCode) -> None:
        """What could not be written is found again by the next round."""
        if error:
            return
        self.timeout_count += 1
        producer = f"producer {aborted.producer_id}, epoch {aborted.epoch}"
        late = f"it took longer than its {aborted.timeout_ms} ms (transaction.timeout.ms)"
        self._effects.note(plain(f"transaction of {transactional_id} ({producer}) is aborted: {late}"))

    def _expire_some(self, ids: list[str]) -> None:
        """What cannot be written is found again by the next round."""
        now_ms, expiration_ms = self._effects.time_ms, self._settings.id_expiration_ms
        records: list[Record] = []
        size = 0
        for each in ids:
            found = self._book.written.get(each)
            if found is None or not asking.is_expired(found, now_ms, expiration_ms):
                continue
            records.append(tombstone(each))
            size += len(records[-1].key)
            if size >= PIECE_BYTES:
                self._effects.write(records, _ignore)
                records, size = [], 0
        if records:
            self._effects.write(records, _ignore)


def _ignore(_: ErrorCode) -> None:
    """Nobody asked."""
