"""A shard of transactional ids on a bench: its records are committed when the test says so, partitions have a marker when it says
so, and its clock stands until it is moved."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.broker.coordinator.decisions.effects import Done, Record
from ottla.broker.coordinator.decisions.transactions.asking import NOBODY, Producer
from ottla.broker.coordinator.decisions.transactions.effects import Marker
from ottla.broker.coordinator.decisions.transactions.marker_queue import Place, places_of
from ottla.broker.coordinator.decisions.transactions.settings import TransactionSettings
from ottla.broker.coordinator.decisions.transactions.shard import Beginning, Told, TransactionShard
from ottla.broker.coordinator.decisions.transactions.transaction import Partitions, State, Transaction
from ottla.broker.coordinator.decisions.transactions.transaction_records import record
from ottla.broker.coordinator.decisions.transactions.transitions import replace
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.shard_bench import ShardBench, size_of

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
        self.left: Mapping[Place, int] = dict.fromkeys(places_of(partitions.items()), 1)

    def cancel(self) -> None:
        self.is_cancelled = True

    def arrive(self) -> None:
        """All partitions have it."""
        if not self.is_cancelled:
            self._done()


class Bench(ShardBench):
    """The effects of one shard, its node, and the requests of its producers."""

    shard: TransactionShard

    def __init__(self, *, commits: bool = True, version: int = 2, **settings: Any) -> None:
        super().__init__(commits=commits)
        self.transaction_version = version
        self.room = 1_000_000
        self.sent: list[Sent] = []
        self.settings = TransactionSettings(**settings)
        self.next_id = 1_000
        self.asked_for_ids: list[Callable[[int, ErrorCode], None]] = []
        self.has_ids = True
        self.markers = self
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
        return size_of(records) <= self.room

    def write(self, records: Sequence[Record], done: Done) -> None:
        assert self.has_room_for(records), "it would be refused"
        super().write(records, done)

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
