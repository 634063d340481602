"""What a broker keeps in partitions of its own."""

from collections.abc import Callable
from typing import Any

from ottla.broker.replication import own_appends
from ottla.broker.replication.appending import OwnAppend
from ottla.broker.replication.listeners import TopicListeners
from ottla.broker.replication.own_reads import high_watermark
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation import ledger
from ottla.testing.simulation.planted.bug import PlantedBug
from ottla.testing.simulation.roles import leader_of

OWN = "a coordinator's records are its own"
STATE = "a coordinator's state is what its partition says"
KILLED = tuple(Fault(600 + 1_900 * number, "kill", (leader_of(ledger.TOPIC, 0),), 900) for number in range(4))
ALONE = (Fault(600, "isolate", (leader_of(ledger.TOPIC, 0),), 2_500),)
_INIT = OwnAppend.__init__
_SETTLE = own_appends._Batch.settle


def _hasty(append: OwnAppend, info: Any, on_done: Callable[[int], None]) -> None:
    _INIT(append, info, on_done)
    append.settle(0, ErrorCode.NONE)


def _believes_in_success(batch: Any, error: int) -> None:
    _SETTLE(batch, ErrorCode.NONE)


OWNS = (
    PlantedBug(
        "load only what is known to be committed",
        "log_end: all that a leader has will be committed, and is what it goes on from",
        ((ledger, "log_end", high_watermark),),
        1,
        KILLED,
        (OWN, STATE),
        ("ledgers",),
    ),
    PlantedBug(
        "tell of an own append as soon as it is written",
        "append_own: done is when the replicas in sync have it",
        ((OwnAppend, "__init__", _hasty),),
        1,
        ALONE,
        (OWN, "BrokenPromise"),
        ("ledgers",),
    ),
    PlantedBug(
        "take a failed own append for one that is done",
        "OwnAppends: an outcome that nobody knows is no success",
        ((own_appends._Batch, "settle", _believes_in_success),),
        1,
        ALONE,
        (OWN, "BrokenPromise"),
        ("ledgers",),
    ),
    PlantedBug(
        "tell nobody that another leads",
        "TopicListeners: each election has its resignation",
        ((TopicListeners, "_resign", lambda *_: None),),
        1,
        ALONE,
        ("nothing fails unseen", "when faults end, the cluster heals"),
        ("ledgers",),
    ),
)
