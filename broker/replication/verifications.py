"""What is asked before transactions' first batches are written: for the partitions of a broker, under guards of theirs."""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from ottla.broker.replication.decisions.verification import Client, vouched
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.verified_appends import NOBODY_ASKED, guards_of
from ottla.log.producers.verification import NOT_NEEDED, OfProducer
from ottla.runtime.errors import ErrorCode
from ottla.runtime.timers import LoopTimers, Repeated

logger = logging.getLogger(__name__)

ADDING_VERSION = 2
"""The transaction version of clients whose leaders add partitions."""

Then = Callable[[int, ErrorCode], None]
"""Told the guard under which the coordinator vouched, or with NONE's opposite why it did not."""


OnTold = Callable[[ErrorCode], None]


class Transaction(NamedTuple):
    """Of which transaction a partition should be. ``adds``: it is made part of it, else it has to be."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


class Place(NamedTuple):
    topic: str
    partition: int


_Question = tuple[Partition, int, Transaction]
"""Under which guard is asked what."""


class Coordinators(Protocol):
    """Those of all transactions."""

    def ask(self, transaction: Transaction, place: Place, told: OnTold) -> None:
        """``told`` comes once, and never before this returns."""
        ...


class Verifications:
    """``is_enabled``: whether leaders ask about what clients added (``transaction.partition.verification.enable``)."""

    def __init__(self, coordinators: Coordinators, timers: LoopTimers, *, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._coordinators = coordinators
        self._timers = timers
        self._guarded: dict[Partition, None] = {}
        self._asking: dict[_Question, list[OnTold]] = {}
        self._repeated = Repeated(timers)

    def start(self, interval_ms: int, idle_ms_max: Callable[[], int]) -> None:
        """Looks now and then for what nobody came back with."""
        self._repeated.every(interval_ms, lambda: self.expire(idle_ms_max()))

    def stop(self) -> None:
        self._repeated.cancel()

    def begin(
        self, partition: Partition, header: OfProducer, transactional_id: str | None, client: Client, then: Then
    ) -> None:
        """Asks about a batch that may begin a transaction in the partition. ``then`` may come before this returns.

        Batches that follow while the first is asked about have its answer, and in the order in which they came: the coordinator may let a
        question wait for the end of the transaction before, and answer the next one sooner. That batch would be refused as out of order,
        and then the first one written: to its client this says that records it had acknowledged are lost.
        """
        adds = client is Client.ADDS_NOTHING
        if transactional_id is None:
            then(NOT_NEEDED, ErrorCode.INVALID_TXN_STATE)
            return
        if not adds and not self.is_enabled:
            then(NOBODY_ASKED, ErrorCode.NONE)
            return
        self._guarded[partition] = None
        guard = guards_of(partition).begin(header, self._timers.now_ms(), ADDING_VERSION if adds else 0)
        if guard == NOT_NEEDED:
            then(guard, ErrorCode.NONE)
            return
        transaction = Transaction(transactional_id, header.producer_id, header.producer_epoch, adds)
        question = partition, guard, transaction
        waiting = self._asking.setdefault(question, [])
        waiting.append(partial(_told, client, guard, then))
        if len(waiting) == 1:
            place = Place(partition.topic, partition.index)
            self._coordinators.ask(transaction, place, partial(self._answered, question))

    def _answered(self, question: _Question, error: ErrorCode) -> None:
        for told in self._asking.pop(question):
            tell(told, error)

    def expire(self, idle_ms_max: int) -> None:
        """Forgets what nobody came back with."""
        now_ms = self._timers.now_ms()
        for partition in list(self._guarded):
            if partition.usable:
                guards_of(partition).expire(now_ms, idle_ms_max)
            else:
                del self._guarded[partition]


def tell(told: OnTold, error: ErrorCode) -> None:
    """One that fails keeps nobody else from being told."""
    try:
        told(error)
    except Exception:
        logger.exception("Who asked a transaction's coordinator failed at its answer, which is our mistake")


def _told(client: Client, guard: int, then: Then, error: ErrorCode) -> None:
    then(guard, vouched(error, client))
