"""The transactional ids of one partition of `__transaction_state`: loaded by replaying it, and from then on changed by what it is
asked.

Decisions see what was decided before them, committed or not; an answer waits until all that it rests on is committed.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from ottla.broker.coordinator.decisions.effects import Record, Undo
from ottla.broker.coordinator.decisions.record_format import fits
from ottla.broker.coordinator.decisions.transactions import asking, transitions
from ottla.broker.coordinator.decisions.transactions.asking import NOBODY, NeedsProducerIdError, Producer
from ottla.broker.coordinator.decisions.transactions.completing import Completing
from ottla.broker.coordinator.decisions.transactions.counts import TransactionCounts
from ottla.broker.coordinator.decisions.transactions.effects import Node, TransactionEffects
from ottla.broker.coordinator.decisions.transactions.settings import TransactionSettings
from ottla.broker.coordinator.decisions.transactions.sweeps import Sweeps
from ottla.broker.coordinator.decisions.transactions.transaction import (
    NO_EPOCH,
    NO_ID,
    TWO_PHASES_TIMEOUT_MS,
    Partitions,
    State,
    Transaction,
)
from ottla.broker.coordinator.decisions.transactions.transaction_records import read, record
from ottla.broker.coordinator.decisions.transactions.waits import Waits
from ottla.runtime.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_SPARE = Record(bytes(64), None)
"""Room that is left for what else is written of a transaction: one that has begun can be ended."""

IDS_A_TURN = 2_000
"""So many are forgotten at once."""
CLIENT_PATIENCE_MS = 100
"""So long a client's request waits for the transaction before to be over: its next requests wait with it."""
BROKER_PATIENCE_MS = 20
"""A broker's: other producers' requests may wait behind it."""


class Told(NamedTuple):
    """How a producer goes on."""

    error: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


OnTold = Callable[[Told], None]
OnError = Callable[[ErrorCode], None]
OnVerified = Callable[[ErrorCode, Partitions], None]


class Beginning(NamedTuple):
    """What an InitProducerId asks for."""

    timeout_ms: int
    producer: Producer = NOBODY
    two_phases: bool = False
    keeps_prepared: bool = False


class TransactionShard:
    """``written`` is what its records say; what waits, and what is on its way to partitions, is known to this coordinator alone."""

    def __init__(
        self, effects: TransactionEffects, settings: TransactionSettings, node: Node, coordinator_epoch: int
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._node = node
        self.written: dict[str, Transaction] = {}
        self.open: dict[str, float] = {}
        """Those that are ongoing, and when their time is up, by the clock that never goes back."""
        self._waits = Waits(effects)
        self._completing = Completing(effects, node, self, self._waits, coordinator_epoch)
        self._sweeps = Sweeps(effects, settings, self)

    # --- replay -------------------------------------------------------------------------------------------------------

    def replay(self, written: Record, place: int, producer_id: int = NO_ID) -> Undo:
        """Follows a record, in order; what it did can be undone as long as nothing came after it. Raises WireError or ValueError
        for a record that cannot be read."""
        meaning = read(written)
        if meaning is None:
            return _nothing
        transactional_id, transaction = meaning
        before = self.written.get(transactional_id)
        self._set(transactional_id, transaction)
        return lambda: self._set(transactional_id, before)

    def _set(self, transactional_id: str, transaction: Transaction | None) -> None:
        before = self.written.get(transactional_id)
        if transaction is None:
            self.written.pop(transactional_id, None)
        else:
            self.written[transactional_id] = transaction
        if transaction is None or transaction.state is not State.ONGOING:
            self.open.pop(transactional_id, None)
        elif transactional_id not in self.open or before is None or before.started_ms != transaction.started_ms:
            # Not the one that was open before: where a shard is loaded, how that ended may not be replayed.
            self.open[transactional_id] = asking.due_ms(transaction, self._effects.clock_ms, self._effects.time_ms)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Nobody writes to this topic in transactions."""

    # --- begin and end ------------------------------------------------------------------------------------------------

    def begin(self) -> Iterator[None]:
        """All is replayed: what was decided goes on."""
        return self._completing.begin()

    def end(self, error: ErrorCode) -> Iterator[None]:
        """The coordinator is another one now, or none. Whoever waits is sent away; for the others `Effects.write` tells. To forget
        many takes time too."""
        self._completing.end()
        self._waits.end()
        written, self.written = self.written, {}
        self.open.clear()
        return _forget(written)

    # --- what producers ask -------------------------------------------------------------------------------------------

    def init(self, transactional_id: str, beginning: Beginning, told: OnTold) -> None:
        """A producer begins, or goes on after an error."""
        refuse = _refusing(told)
        try:
            timeout_ms = self._checked_timeout(transactional_id, beginning)
        except KafkaError as error:
            refuse(error.code)
            return

        def attempt(new_id: int) -> None:
            known, now_ms = self.written.get(transactional_id), self._effects.time_ms
            if asking.must_fence(known, beginning.producer):
                self.abort(transactional_id, _ignore)
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction that was open is being aborted")
            transaction = asking.initialized(known, beginning.producer, timeout_ms, now_ms, new_id)
            self._tell(transactional_id, transaction, told)

        self._try(transactional_id, attempt, refuse, self._until(CLIENT_PATIENCE_MS))

    def _checked_timeout(self, transactional_id: str, beginning: Beginning) -> int:
        settings = self._settings
        if not transactional_id or not fits(transactional_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id has 1 to 32,767 bytes")
        asking.check_says_who(beginning.producer)
        if beginning.two_phases and not settings.two_phases:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "set transaction.two.phase.commit.enable")
        if beginning.keeps_prepared:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "prepared transactions are not kept")
        if beginning.two_phases:
            return TWO_PHASES_TIMEOUT_MS
        if not 0 < beginning.timeout_ms <= settings.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"at most {settings.max_timeout_ms} ms")
        return beginning.timeout_ms

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Partitions,
        told: OnError,
        *,
        client_version: int = 0,
        patience_ms: int = CLIENT_PATIENCE_MS,
    ) -> None:
        """Partitions, which exist, become part of its transaction."""

        def attempt(_: int) -> None:
            known, now_ms = self.written.get(transactional_id), self._effects.time_ms
            transaction = asking.extended(known, producer, partitions, client_version, now_ms)
            records = [] if transaction is None else [self.record(transactional_id, transaction)]
            if records and not self._effects.has_room_for([*records, _SPARE]):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no record can hold so many partitions")
            self._effects.write(records, told)

        self._try(transactional_id, attempt, told, self._until(patience_ms))

    def verify(
        self, transactional_id: str, producer: Producer, told: OnVerified, *, patience_ms: int = BROKER_PATIENCE_MS
    ) -> None:
        """Tells which partitions are part of the producer's transaction."""

        def attempt(_: int) -> None:
            found = asking.verified(self.written.get(transactional_id), producer)
            self._effects.write((), lambda error: told(error, found))

        self._try(transactional_id, attempt, lambda error: told(error, {}), self._until(patience_ms))

    def finish(
        self, transactional_id: str, producer: Producer, told: OnTold, *, is_commit: bool, client_version: int
    ) -> None:
        """Its transaction is committed, or aborted."""

        def attempt(new_id: int) -> None:
            known, now_ms = self.written.get(transactional_id), self._effects.time_ms
            transaction = asking.ended(
                known, producer, is_commit=is_commit, client_version=client_version, now_ms=now_ms, new_id=new_id
            )
            if transaction is not None:
                self._completing.prepare(transactional_id, transaction, partial(_tell_producer, told, transaction))
            elif known is not None:
                self._effects.write((), partial(_tell_producer, told, known))

        self._try(transactional_id, attempt, _refusing(told), self._until(CLIENT_PATIENCE_MS))

    def abort(self, transactional_id: str, told: OnError) -> None:
        """The open transaction, whoever's it is: its producer is fenced. ``told`` once that stands."""
        fenced = transitions.fenced(
            self.written[transactional_id], self._node.transaction_version, self._effects.time_ms
        )
        self._completing.prepare(transactional_id, fenced, told)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _until(self, patience_ms: int) -> int:
        return self._effects.clock_ms + patience_ms

    def _try(
        self,
        transactional_id: str,
        attempt: Callable[[int], None],
        refuse: OnError,
        until_ms: int,
        new_id: int = NO_ID,
    ) -> None:
        again = partial(self._try, transactional_id, attempt, refuse, until_ms)
        try:
            attempt(new_id)
        except NeedsProducerIdError:
            self._node.allocate(lambda found, error: refuse(error) if error else again(found))
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._refuse(refuse, error.code)
            elif self._effects.clock_ms >= until_ms:
                refuse(error.code)
            else:
                concurrent = partial(refuse, error.code)
                self._waits.wait(transactional_id, until_ms, lambda is_up: concurrent() if is_up else again(new_id))

    def _refuse(self, refuse: OnError, code: ErrorCode) -> None:
        """What is refused is refused for good: only by what is committed."""
        self._effects.write((), lambda error: refuse(error or code))

    def _tell(self, transactional_id: str, transaction: Transaction, told: OnTold) -> None:
        self._effects.write([self.record(transactional_id, transaction)], partial(_tell_producer, told, transaction))

    def record(self, transactional_id: str, transaction: Transaction) -> Record:
        return record(transactional_id, transaction, self._node.transaction_version)

    # --- on its own account -------------------------------------------------------------------------------------------

    def abort_late(self) -> None:
        """Aborts what is open for longer than its producer allowed: some now, the rest soon. What hangs is told to the log."""
        self._sweeps.abort_late()
        self._completing.note_slow()

    def expire(self) -> None:
        """Forgets ids that nobody uses: some now, the rest soon."""
        self._sweeps.expire()

    # --- what is asked about them -------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> Transaction | None:
        return self.written.get(transactional_id)

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        return iter(self.written.items())

    def counts(self) -> TransactionCounts:
        ends = self._completing.ends
        return TransactionCounts(ends[State.COMPLETE_COMMIT], ends[State.COMPLETE_ABORT], self._sweeps.timeout_count)

    @property
    def unwritten_count(self) -> int:
        """Transactions that are over in all their partitions, which could not be written here."""
        return len(self._completing.unwritten)

    def contents(self) -> Mapping[str, Transaction]:
        """Everything that its partition says, to be compared with another's that replayed it."""
        return {
            name: transitions.replace(each, last_epoch=NO_EPOCH, previous_producer_id=NO_ID)
            for name, each in self.written.items()
        }


def _tell_producer(told: OnTold, transaction: Transaction, error: ErrorCode) -> None:
    told(Told(error) if error else Told(error, *transaction.producer))


def _refusing(told: OnTold) -> OnError:
    return lambda error: told(Told(error))


def _ignore(_: ErrorCode) -> None:
    """Nobody asked."""


def _forget(written: dict[str, Transaction]) -> Iterator[None]:
    while written:
        for name in list(islice(written, IDS_A_TURN)):
            del written[name]
        yield


def _nothing() -> None:
    """Undoes nothing."""
