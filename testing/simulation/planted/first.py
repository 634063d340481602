"""The first seven: what every run looks at."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.broker.fetch_tuples import FetchedPartition
from ottla.broker.handlers.fetching import fetch_read
from ottla.broker.handlers.fetching.pending_fetch import PendingFetch
from ottla.broker.replication import acks
from ottla.broker.replication.decisions import follower, leader
from ottla.broker.replication.decisions.fetch_session import FetchSession, SessionCache, SessionPartition
from ottla.broker.replication.decisions.high_watermark import leader_high_watermark
from ottla.broker.replication.decisions.truncation import Diverging
from ottla.broker.replication.partition import Partition
from ottla.log.compaction.mapping import DirtySection, KeyMap
from ottla.log.compaction.walk import DEAD
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.snapshots.image_copies import ImageSnapshots
from ottla.runtime.key_value import KeyValueStore, Pair
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug, split_off

_SECTION = KeyMap.section
_COPY_TO = ImageSnapshots.copy_to
_SAVE = ElectionStore.save
_SETTLE = PendingFetch._settle

SPLITS = (*split_off(200, 1, 3000), *split_off(4500, 2, 3000))
POWER_CUTS = tuple(Fault(300 + 2500 * number, "crash", (f"node-{number + 1}",), 200) for number in range(3))
LATE_POWER_CUTS = tuple(Fault(6000 + 700 * number, "crash", (f"node-{number + 1}",), 200) for number in range(3))
"""After the stores were synced once: an election state is there, and it is an old one."""
AWAY = (Fault(500, "isolate", ("node-3",), 4000),)
GONE = (Fault(1500, "kill", ("node-3",), 3000),)
UNREGISTERED = (Fault(4200, "unregister", ("node-3",), 1000),)
SLOW = (Fault(100, "slow-link", ("node-1", "node-2", 10.0, 50.0), 1000),)


def _acknowledges_at_once(partition: Partition, last_offset: int) -> bool:
    return partition.leader is not None


def _asks_for_no_epoch(partition: Partition, epoch: int) -> None:
    """The fetch is served whatever leader epoch the follower lives in."""


def _compares_no_epochs(fetch_offset: int, last_fetched_epoch: int, end_offset_for_epoch: object) -> Diverging | None:
    return None


def _keeps_its_branch(diverging: Diverging, log_end_offset: int, *_: object) -> int:
    return log_end_offset


class _Careless(NamedTuple):
    """Writes, and leaves it to the next sync of whoever comes."""

    store: KeyValueStore

    def write(self, puts: Iterable[Pair], *, durable: bool) -> None:
        self.store.write(puts, durable=False)


def _forgets(store: ElectionStore, state: ElectionState) -> None:
    kept = store._store
    store._store = _Careless(kept)  # type: ignore[assignment]  # as much of one as a save needs
    _SAVE(store, state)
    store._store = kept


def _leaves_a_setting_out(snapshots: ImageSnapshots, path: str) -> OffsetAndEpoch | None:
    place, copy = _COPY_TO(snapshots, path), snapshots._open_store(path)
    copy.write([], [key for key, _ in copy.scan(b"g")][:1], durable=True)
    copy.close()
    return place


def _counts_twice(*offsets: int, **known: Any) -> int:
    """The follower that is furthest stands for the others too."""
    replicas = known["replicas"]
    best = max(replicas.values(), key=lambda replica: replica.log_end_offset, default=None)
    return leader_high_watermark(*offsets, **{**known, "replicas": dict.fromkeys(replicas, best)})


def _forgets_who_found_no_room(
    fetch: PendingFetch, entry: SessionPartition, answer: FetchedPartition, had_no_room: bool
) -> bool:
    return _SETTLE(fetch, entry, answer, False)


def _outlives_nothing(sessions: SessionCache, session_id: int, broker_epoch: int) -> FetchSession | None:
    return None


def _drops_one_key(keymap: KeyMap, first_offset: int, end_offset: int) -> DirtySection:
    """The key that came last the longest time ago counts as superseded."""
    section = _SECTION(keymap, first_offset, end_offset)
    oldest = min(section.keys.values(), default=0)
    return section._replace(fates=section.fates[:oldest] + bytes([DEAD]) + section.fates[oldest + 1 :])


FIRST = (
    PlantedBug(
        "acknowledge before the ISR has it",
        "acks.has_committed: acks=all waits for the high watermark",
        ((acks, "has_committed", _acknowledges_at_once),),
        1,
        SLOW,
        ("only committed records are acknowledged",),
    ),
    PlantedBug(
        "skip the epoch check on append",
        "fetch_read.locate: a follower appends only after the epochs of both logs were compared",
        ((Partition, "require_epoch", _asks_for_no_epoch), (fetch_read, "divergence", _compares_no_epochs)),
        1,
        SPLITS,
        (
            "replicas are equal up to the high watermark",
            "a leader has every committed record",
            "when faults end, the cluster heals",
        ),
    ),
    PlantedBug(
        "do not truncate",
        "truncation_offset: a follower cuts what its leader does not have",
        ((follower, "truncation_offset", _keeps_its_branch),),
        1,
        SPLITS,
        ("replicas are equal up to the high watermark", "when faults end, the cluster heals"),
    ),
    PlantedBug(
        "forget the fsync of the vote",
        "ElectionStore.save: durable before it takes effect",
        ((ElectionStore, "save", _forgets),),
        7,
        LATE_POWER_CUTS,
        ("votes are remembered", "one quorum leader an epoch"),
    ),
    PlantedBug(
        "leave a setting out of snapshots",
        "ImageSnapshots.copy_to: a snapshot has all that was committed before it",
        ((ImageSnapshots, "copy_to", _leaves_a_setting_out),),
        1,
        AWAY,
        ("a snapshot is what the log says",),
        ("topics",),
    ),
    PlantedBug(
        "count a follower twice",
        "leader_high_watermark: every member of the ISR counts for itself",
        ((leader, "leader_high_watermark", _counts_twice),),
        1,
        SLOW,
        ("every in-sync replica has what is committed",),
    ),
    PlantedBug(
        "forget who found no room in an answer",
        "PendingFetch._settle: a partition that was left out keeps its turn",
        ((PendingFetch, "_settle", _forgets_who_found_no_room),),
        1,
        GONE,
        ("when faults end, the cluster heals",),
        ("limits",),
    ),
    PlantedBug(
        "let a fetch session outlive a broker epoch",
        "SessionCache.outlived: what a leader knows of a follower belongs to one registration",
        ((SessionCache, "outlived", _outlives_nothing),),
        1,
        UNREGISTERED,
        ("when faults end, the cluster heals",),
        ("limits",),
    ),
    PlantedBug(
        "compact the last value of a key away",
        "KeyMap.section: the last record of each key survives",
        ((KeyMap, "section", _drops_one_key),),
        1,
        POWER_CUTS,
        ("compaction keeps the last value of each key", "BrokenPromise"),
        ("compaction",),
    ),
)
