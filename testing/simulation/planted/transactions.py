"""Transactions: their coordinators, what partitions do with them, and the offsets that they commit."""

from collections.abc import Callable
from typing import Any

from ottla.broker.coordinator.decisions.groups.offset_store import OffsetStore
from ottla.broker.coordinator.decisions.transactions import asking, marker_queue, transitions
from ottla.broker.coordinator.decisions.transactions.completing import Completing
from ottla.broker.coordinator.decisions.transactions.marker_queue import Place, Task
from ottla.broker.coordinator.decisions.transactions.transaction import Transaction
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.internal_topics import GROUPS, TRANSACTIONS
from ottla.broker.replication.verifications import Verifications
from ottla.broker.replication.verified_appends import NOBODY_ASKED
from ottla.log.read import ReadableLog
from ottla.log.state import LogState
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import SPLIT
from ottla.testing.simulation.coordinated import COORDINATORS
from ottla.testing.simulation.copies import ENDED, FENCED, OFFSETS, ONCE, STABLE, WHOLE
from ottla.testing.simulation.dimensions.transactions import TARGET, transactional_id
from ottla.testing.simulation.planted.bug import PlantedBug
from ottla.testing.simulation.roles import leader_of
from ottla.testing.simulation.shards import STATE

HEALS = "when faults end, the cluster heals"
PLACE = partition_of(transactional_id(0), COORDINATORS)
COORDINATOR = leader_of(TRANSACTIONS, PLACE)
KILLED = tuple(Fault(1_100 + 1_300 * number, "kill", (COORDINATOR,), 700) for number in range(4))
LEADERS_KILLED = tuple(Fault(1_100 + 1_300 * number, "kill", (leader_of(TARGET, 0),), 700) for number in range(4))
GROUPS_KILLED = tuple(
    Fault(900 + 1_300 * number, "kill", (leader_of(GROUPS, place),), 600)
    for place in range(COORDINATORS)
    for number in range(4)
)
COORDINATOR_SPLIT = tuple(Fault(700 + 1_600 * number, SPLIT, (COORDINATOR,), 2_500) for number in range(4))
"""Clients and leaders of partitions reach a coordinator that can commit nothing any more."""
_PREPARE = Completing.prepare
_BUMPED, _END = transitions.bumped, OffsetStore.end_transaction


def _keeps_the_epoch(known: Transaction, timeout_ms: int, now_ms: int, *, epoch: int, last_epoch: int) -> Transaction:
    return _BUMPED(known, timeout_ms, now_ms, epoch=known.epoch, last_epoch=last_epoch)


def _takes_all_for_written(task: Task, place: Place, code: int) -> None:
    del task.places[place]


def _tells_at_once(
    completing: Completing, transactional_id: str, transaction: Transaction, told: Callable[[ErrorCode], None]
) -> None:
    _PREPARE(completing, transactional_id, transaction, lambda _: None)
    told(ErrorCode.NONE)


def _asks_nobody(
    _verifications: Verifications, _partition: Any, _header: Any, _id: Any, _client: Any, then: Any
) -> None:
    then(NOBODY_ASKED, ErrorCode.NONE)


def _bug(
    name: str, rule: str, patch: tuple[Any, str, Any], faults: tuple[Fault, ...], *invariants: str, seed: int = 1
) -> PlantedBug:
    return PlantedBug(name, rule, (patch,), seed, faults, invariants, ("transactions",))


TRANSACTION_BUGS = (
    _bug(
        "show what is open at read_committed",
        "LogState.last_stable_offset: below it no transaction is open",
        (LogState, "last_stable_offset", property(lambda log: log.high_watermark)),
        (),
        STABLE,
        FENCED,
    ),
    _bug(
        "tell consumers of no aborted transaction",
        "Log.aborted_transactions: consumers drop what is in the list",
        (ReadableLog, "aborted_transactions", lambda *_: []),
        (),
        FENCED,
        WHOLE,
    ),
    _bug(
        "give a new process the epoch of the one before",
        "asking.initialized: whoever begins fences who was before",
        (transitions, "bumped", _keeps_the_epoch),
        (),
        FENCED,
        ONCE,
        WHOLE,
    ),
    _bug(
        "let who is fenced end the transaction",
        "asking.ended: only who has the epoch",
        (asking, "_check_identity", lambda *_: None),
        (),
        FENCED,
        ONCE,
        "nothing fails unseen",
        WHOLE,
    ),
    _bug(
        "abort nothing that is late",
        "asking.is_late: what is open for longer than was said is aborted",
        (asking, "is_late", lambda *_: False),
        (),
        ENDED,
    ),
    _bug(
        "forget what was decided when another coordinates",
        "Completing.begin: what is prepared is completed",
        (Completing, "begin", lambda _: None),
        KILLED,
        HEALS,
        ENDED,
        seed=14,
    ),
    _bug(
        "tell how a transaction ends before that is committed",
        "Completing.prepare: whoever asked is told when the decision stands",
        (Completing, "prepare", _tells_at_once),
        COORDINATOR_SPLIT,
        WHOLE,
        seed=154,
    ),
    _bug(
        "take a refused marker for a written one",
        "MarkerQueue: each partition is told until it has heard",
        (marker_queue, "_settle", _takes_all_for_written),
        GROUPS_KILLED,
        HEALS,
        ENDED,
        WHOLE,
        seed=26,
    ),
    _bug(
        "commit the offsets of what is aborted",
        "OffsetStore.end_transaction: an abort leaves offsets as they were",
        (OffsetStore, "end_transaction", lambda store, producer_id, is_commit: _END(store, producer_id, True)),
        (),
        ONCE,
    ),
    _bug(
        "ask no coordinator whether a transaction is open",
        "Verifications.begin: a transaction begins in a partition only if its coordinator knows",
        (Verifications, "begin", _asks_nobody),
        (),
        FENCED,
        ENDED,
        WHOLE,
        HEALS,
    ),
    _bug(
        "keep a group's coordinator from hearing how transactions end",
        "GroupShard.end_transaction: what a transaction committed counts from its marker on",
        (OffsetStore, "end_transaction", lambda *_: None),
        (),
        ONCE,
        OFFSETS,
        STATE,
        HEALS,
    ),
)
