"""A shard of transactional ids on a bench: its records are committed when the test says so, partitions have a marker when it says
so, and its clock stands until it is moved."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ottla.broker.coordinator.decisions.effects import Done, Record, Undo
from ottla.broker.coordinator.decisions.transactions.asking import NOBODY, Producer
from ottla.broker.coordinator.decisions.transactions.effects import Marker
from ottla.broker.coordinator.decisions.transactions.settings import TransactionSettings
from ottla.broker.coordinator.decisions.transactions.shard import Beginning, Told, TransactionShard
from ottla.broker.coordinator.decisions.transactions.transaction import Partitions, State, Transaction
from ottla.broker.coordinator.decisions.transactions.transaction_records import record
from ottla.broker.coordinator.decisions.transactions.transitions import replace
from ottla.runtime.errors import ErrorCode

TIME_MS = 1_800_000_000_000
TIMEOUT_MS = 60_000
T0: Partitions = {"t": frozenset((0,))}
V1, V2 = 0, 2
"""Of the rules that a client goes by."""


class Sent:
    """A marker on its way."""

    def __init__(self, marker: Marker, partitions: Partitions, done: Callable[[], None]) -> None:
        self.marker = marker
        self.partitions = partitions
        self._done = done
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def arrive(self) -> None:
        """All partitions have it."""
        if not self.is_cancelled:
            self._done()


class Bench:
    """The effects of one shard, its node, and the requests of its producers."""

    def __init__(self, *, commits: bool = True, version: int = 2, **settings: Any) -> None:
        self.commits = commits
        """Whether records are committed as soon as they are written."""
        self.transaction_version = version
        self.refuses = ErrorCode.NONE
        self.room = 1_000_000
        self.clock_ms, self.time_ms = 1_000, TIME_MS
        self.log: list[Record] = []
        self.pieces: list[int] = []
        """How many records were given together."""
        self.sent: list[Sent] = []
        self.settings = TransactionSettings(**settings)
        self.next_id = 1_000
        self.asked_for_ids: list[Callable[[int, ErrorCode], None]] = []
        self.has_ids = True
        self.markers = self
        self.reminded = 0
        self._waiting: deque[tuple[Done, list[Undo]]] = deque()
        self._reminders: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self.shard = TransactionShard(self, self.settings, self, 7)

    # --- Node, Markers ------------------------------------------------------------------------------------------------

    def has(self, topic: str, index: int) -> bool:
        return topic != "none"

    def allocate(self, on_done: Callable[[int, ErrorCode], None]) -> None:
        if self.has_ids:
            self.next_id += 1
            on_done(self.next_id, ErrorCode.NONE)
        else:
            self.asked_for_ids.append(on_done)

    def send(self, marker: Marker, partitions: Partitions, done: Callable[[], None]) -> Sent:
        self.sent.append(Sent(marker, partitions, done))
        return self.sent[-1]

    # --- Effects ------------------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        raise AssertionError("nobody needs one")

    def has_room_for(self, records: Sequence[Record]) -> bool:
        return sum(len(each.key) + len(each.value or b"") for each in records) <= self.room

    def write(self, records: Sequence[Record], done: Done) -> None:
        if self.refuses:
            done(self.refuses)
            return
        assert self.has_room_for(records), "it would be refused"
        self.pieces.append(len(records))
        undoes = []
        for each in records:
            undoes.append(self.shard.replay(each, len(self.log)))
            self.log.append(each)
        self._waiting.append((done, undoes))
        if self.commits:
            self.commit()

    def remind(self, name: Hashable, in_ms: int, call: Callable[[], None]) -> None:
        self.reminded += 1
        assert self.reminded < 100_000, "it spins"
        self._reminders[name] = self.clock_ms + in_ms, call

    def soon(self, call: Callable[[], None]) -> None:
        self.remind(("soon", self.reminded), 0, call)

    def forget(self, name: Hashable) -> None:
        self._reminders.pop(name, None)

    # --- the test's hands ---------------------------------------------------------------------------------------------

    @property
    def reminders(self) -> int:
        return len(self._reminders)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """What is written is committed, or nobody knows."""
        while self._waiting:
            self._waiting.popleft()[0](error)

    def fail(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """What was to be written cannot be: all of it is undone, then told."""
        unwritten, self._waiting = self._waiting, deque()
        for _, undoes in reversed(unwritten):
            for undo in reversed(undoes):
                undo()
                self.log.pop()
        for done, _ in unwritten:
            done(error)

    def wait(self, by_ms: int) -> None:
        """Time passes; reminders come when they are due."""
        end_ms, start_ms = self.clock_ms + by_ms, self.clock_ms
        while due := [
            (at_ms, index, name) for index, (name, (at_ms, _)) in enumerate(self._reminders.items()) if at_ms <= end_ms
        ]:
            at_ms, _, name = min(due)
            self.time_ms += max(at_ms - self.clock_ms, 0)
            self.clock_ms = max(at_ms, self.clock_ms)
            _, call = self._reminders.pop(name)
            call()
        self.time_ms += end_ms - max(self.clock_ms, start_ms)
        self.clock_ms = end_ms

    def another(self) -> "Bench":
        """A coordinator that takes over: it has what was written, as bytes."""
        other = Bench(commits=self.commits, version=self.transaction_version)
        other.settings = self.settings
        other.clock_ms, other.time_ms, other.log, other.next_id = 77, self.time_ms, list(self.log), self.next_id
        other.shard = TransactionShard(other, other.settings, other, 8)
        for offset, each in enumerate(self.log):
            other.shard.replay(Record(each.key, each.value), offset)
        for _ in other.shard.begin():
            pass
        other.wait(0)
        return other

    # --- producers ----------------------------------------------------------------------------------------------------

    def init(
        self, producer: Producer = NOBODY, *, timeout_ms: int = TIMEOUT_MS, name: str = "x", **more: Any
    ) -> list[Told]:
        answers: list[Told] = []
        self.shard.init(name, Beginning(timeout_ms, producer, **more), answers.append)
        return answers

    def producer(self, name: str = "x", **more: Any) -> Producer:
        """One that begins."""
        return who(self.init(name=name, **more))

    def add(self, producer: Producer, partitions: Partitions = T0, *, name: str = "x", **more: Any) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.shard.add(name, producer, partitions, answers.append, **more)
        return answers

    def verify(self, producer: Producer, name: str = "x") -> list[tuple[ErrorCode, Partitions]]:
        answers: list[tuple[ErrorCode, Partitions]] = []
        self.shard.verify(name, producer, lambda *answer: answers.append(answer))
        return answers

    def end(self, producer: Producer, *, commits: bool = True, rules: int = V2, name: str = "x") -> list[Told]:
        answers: list[Told] = []
        self.shard.finish(name, producer, answers.append, is_commit=commits, client_version=rules)
        return answers

    def arrive(self) -> None:
        """Partitions have what was sent to them."""
        sent, self.sent = self.sent, []
        for each in sent:
            each.arrive()

    # --- what tests begin with ----------------------------------------------------------------------------------------

    def begun(self, partitions: Partitions = T0, **more: Any) -> Producer:
        """A producer with a transaction that is open."""
        producer = self.producer(**more)
        assert self.add(producer, partitions) == [ErrorCode.NONE]
        return producer

    def set(self, **changes: Any) -> None:
        """Makes the transaction another one, as if its record said so."""
        written = record("x", replace(self.transaction, **changes), self.transaction_version)
        self.shard.replay(written, len(self.log))
        self.log.append(written)

    def state(self) -> State:
        return self.transaction.state

    @property
    def transaction(self) -> Transaction:
        found = self.shard.find("x")
        assert found is not None, "it is not known"
        return found


def who(answers: list[Told]) -> Producer:
    (told,) = answers
    assert told.error is ErrorCode.NONE, told
    return Producer(told.producer_id, told.epoch)


def code(answers: Sequence[Any]) -> ErrorCode:
    """What was answered, or was answered first of several."""
    (told,) = answers
    return ErrorCode(told if isinstance(told, int) else told[0])
