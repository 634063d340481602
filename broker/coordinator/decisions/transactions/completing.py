"""From the decision how a transaction ends to its end: all its partitions are told, then it is complete.

A decision stands once its record is committed, and only then is a partition told. From there on it goes on until it is done, here or
at the next coordinator: each step is tried again for ever, and each may be done twice.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from itertools import islice
from typing import Protocol

from ottla.broker.coordinator.decisions.effects import Effects, Record
from ottla.broker.coordinator.decisions.transactions import transitions
from ottla.broker.coordinator.decisions.transactions.effects import Marker, Node, Sending
from ottla.broker.coordinator.decisions.transactions.transaction import State, Transaction
from ottla.broker.coordinator.decisions.transactions.waits import Waits
from ottla.runtime.errors import ErrorCode
from ottla.runtime.printable import plain

RETRY_MS = 100
SLOW_MS, SLOW_NOTED_MAX = 10_000, 3
LOOKED_AT_MAX = 250
"""Transactions that the next coordinator goes on with, a turn of the loop."""


class Book(Protocol):
    """What the shard has."""

    written: dict[str, Transaction]

    def record(self, transactional_id: str, transaction: Transaction) -> Record: ...


class Completing:
    """The transactions of one shard that are prepared."""

    def __init__(self, effects: Effects, node: Node, book: Book, waits: Waits, coordinator_epoch: int) -> None:
        self._effects = effects
        self._node = node
        self._book = book
        self._waits = waits
        self._coordinator_epoch = coordinator_epoch
        self._under_way: MutableMapping[str, Sending] = {}
        self.ends: Counter[State] = Counter()
        """How many transactions came to their end here, by how."""
        self.unwritten: set[str] = set()
        """Of these all partitions know how they ended; that they are complete could not be written, and is tried again."""

    def begin(self) -> Iterator[None]:
        """The last coordinator may have told any of their partitions, or none."""
        prepared = [(name, each) for name, each in self._book.written.items() if each.is_prepared]
        for count, (transactional_id, transaction) in enumerate(prepared, 1):
            self._look_again(transactional_id, transaction, 0)
            if not count % LOOKED_AT_MAX:
                yield

    def end(self) -> None:
        for sending in self._under_way.values():
            sending.cancel()
        self._under_way.clear()
        self.unwritten.clear()

    def prepare(self, transactional_id: str, transaction: Transaction, told: Callable[[ErrorCode], None]) -> None:
        """``transaction`` is the decision; ``told`` once it stands."""

        def done(error: ErrorCode) -> None:
            told(error)
            self._go_on(transactional_id, transaction, error)

        self._effects.write([self._book.record(transactional_id, transaction)], done)

    def note_slow(self) -> None:
        """For the log: what was decided long ago. Who reads what is committed waits at its first record."""
        time_ms, written = self._effects.time_ms, self._book.written
        decided = (each for each in (*self._under_way, *self.unwritten) if each in written)
        slow = [each for each in decided if time_ms - written[each].updated_ms >= SLOW_MS]
        for each in slow[:SLOW_NOTED_MAX]:
            sending = self._under_way.get(each)
            self._effects.note(_slow(each, written[each], sending.left if sending is not None else {}, time_ms))
        if len(slow) > SLOW_NOTED_MAX:
            self._effects.note(f"{len(slow) - SLOW_NOTED_MAX} more transactions wait so")

    def _stands(self, transactional_id: str, prepared: Transaction) -> bool:
        return self._book.written.get(transactional_id) is prepared

    def _look_again(self, transactional_id: str, prepared: Transaction, in_ms: int) -> None:
        look = partial(self._look, transactional_id, prepared)
        self._effects.remind(("decided", transactional_id), in_ms, look)

    def _look(self, transactional_id: str, prepared: Transaction) -> None:
        """Whether the decision is committed by now."""
        self._effects.write((), partial(self._go_on, transactional_id, prepared))

    def _go_on(self, transactional_id: str, prepared: Transaction, error: ErrorCode) -> None:
        if not self._stands(transactional_id, prepared):
            self._waits.send_away(transactional_id)  # it was undone, and would be again
        elif error:
            self._look_again(transactional_id, prepared, RETRY_MS)  # it may be committed later
        else:
            self._send(transactional_id, prepared)

    def _send(self, transactional_id: str, prepared: Transaction) -> None:
        marker = Marker(
            prepared.producer_id,
            prepared.epoch,
            prepared.state is State.PREPARE_COMMIT,
            self._coordinator_epoch,
            prepared.client_version,
        )
        done = partial(self._all_told, transactional_id, prepared)
        self._under_way[transactional_id] = self._node.markers.send(marker, prepared.partitions, done)

    def _all_told(self, transactional_id: str, prepared: Transaction) -> None:
        del self._under_way[transactional_id]
        self._complete(transactional_id, prepared)

    def _complete(self, transactional_id: str, prepared: Transaction) -> None:
        complete = transitions.completed(prepared, self._effects.time_ms)

        def done(error: ErrorCode) -> None:
            if self._stands(transactional_id, prepared):  # the completion was undone
                again = partial(self._complete, transactional_id, prepared)
                self._effects.remind(("complete", transactional_id), RETRY_MS, again)
                self.unwritten.add(transactional_id)
                return
            self.unwritten.discard(transactional_id)
            if not error:
                self.ends[complete.state] += 1

        self._effects.write([self._book.record(transactional_id, complete)], done)
        self._waits.wake(transactional_id)  # who comes next is told once this is committed too


def _slow(transactional_id: str, prepared: Transaction, left: Mapping[tuple[str, int], int], time_ms: int) -> str:
    what = "commit" if prepared.state is State.PREPARE_COMMIT else "abort"
    ago = (time_ms - prepared.updated_ms) // 1_000
    waits = [f"{topic}-{index} ({_through(broker_id)})" for (topic, index), broker_id in islice(left.items(), 1)]
    waits += [f"{len(left) - 1} more"] * (len(left) > 1)
    producer = f"producer {prepared.producer_id}, epoch {prepared.epoch}"
    told = f"transaction of {transactional_id} ({producer}): decided to {what} {ago} s ago, waits for "
    return plain(told + (" and ".join(waits) or "this partition, to write that it is over"))


def _through(broker_id: int) -> str:
    return f"broker {broker_id}" if broker_id >= 0 else "nobody leads it, or its leader refuses"
