"""What a log remembers, cuts and finds."""

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ottla.log import recovery, truncation
from ottla.log.batch import BatchHeader
from ottla.log.directories.checkpoints import RECOVERY_POINTS
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.manager import LogManager
from ottla.log.epochs import LeaderEpochCache
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.producers.state import Duplicate, Origin, ProducerStateManager
from ottla.log.results import AppendInfo
from ottla.log.segments import soundness
from ottla.log.segments.index import OffsetIndex
from ottla.runtime.disk import Disk
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.dimensions.checkpoints import GONE, LOST
from ottla.testing.simulation.planted.bug import PlantedBug, split_off

if TYPE_CHECKING:
    from ottla.log.config import LogConfig

_LOAD = ProducerStateManager.load
_SOUND_PREFIX = soundness.sound_prefix
_FORGET_BEHIND = truncation._forget_behind
_END_OFFSET_FOR = LeaderEpochCache.end_offset_for
_FLOOR = OffsetIndex.floor
_GET_OR_CREATE = LogManager.get_or_create
ARRIVALS_LEADER = 3
USERS = "users get answers a correct cluster gives"
EQUAL = "replicas are equal up to the high watermark"
HEALS = "when faults end, the cluster heals"
OPENED = "logs are whole when they are opened"
COMMITTED = "only committed records are acknowledged"


def _keeps_producers(
    producers: ProducerStateManager, disk: Disk, directory: str, *, first_offset: int, log_end_offset: int
) -> int:
    if producers.producer_ids:
        return log_end_offset
    return _LOAD(producers, disk, directory, first_offset=first_offset, log_end_offset=log_end_offset)


class _AnyCrc:
    """Equal to every other."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _sound_without_crc(*args: Any) -> soundness.Sound:
    with patch.object(soundness, "crc32c", lambda data: _AnyCrc()):
        return _SOUND_PREFIX(*args)


def _lowers_the_start_alone(log: Log, offset: int) -> None:
    log.log_start_offset = min(log.log_start_offset, offset)


def _forgets_all_but_the_point(log: Log) -> None:
    point = log.recovery_point
    _FORGET_BEHIND(log)
    log.recovery_point = point


def _takes_over(
    manager: LogManager, partition: TopicPartition, config: "LogConfig", topic_id: bytes, *args: Any, **kwargs: Any
) -> Log:
    return manager.logs.get(partition) or _GET_OR_CREATE(manager, partition, config, topic_id, *args, **kwargs)


def _knows_none(manager: LogManager, is_ours: object) -> list[Log]:
    return []


def _accepts_all(producers: ProducerStateManager, header: BatchHeader, origin: Origin = Origin.CLIENT) -> None:
    return None


def _one_more(epochs: LeaderEpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
    found, end = _END_OFFSET_FOR(epochs, epoch, log_end_offset)
    return found, min(end + 1, log_end_offset) if end >= 0 else end


def _keeps_epochs(epochs: LeaderEpochCache, end_offset: int) -> None:
    """Those that begin beyond the end stay."""


def _one_further(index: OffsetIndex, relative_offset: int) -> int:
    return min(_FLOOR(index, relative_offset) + 1, len(index.offsets) - 1)


def _answers_with_the_end(log: Log, duplicate: Duplicate, header: BatchHeader) -> AppendInfo:
    end = log.log_end_offset
    return AppendInfo(end, end + header.last_offset_delta, duplicate.timestamp, -1, log.log_start_offset, True, 0)


AWAY_FROM_CLIENTS = tuple(
    Fault(1500, "cut", way, 5000)
    for other in (1, 2)
    for way in (("harness", f"node-{other}"), (f"node-{other}", "harness"))
)
LEADS_AGAIN = (
    *split_off(800, ARRIVALS_LEADER, 2200),
    *AWAY_FROM_CLIENTS,
    Fault(3600, "kill", ("leader:arrivals:0",), 2500),
)
"""A leader writes what nobody takes, cuts it, and leads again before clients have found another."""
STALLED = (Fault(500, "pause", ("node-1",), 1550),)
"""Nothing is committed for a while: producers hear that their batches took too long, and repeat them."""

LOGS = (
    PlantedBug(
        "keep producers' numbers that were cut off",
        "truncation: the producer state goes back with the log",
        ((ProducerStateManager, "load", _keeps_producers),),
        1,
        LEADS_AGAIN,
        (COMMITTED, EQUAL, "BrokenPromise", HEALS),
        ("pipelines",),
    ),
    PlantedBug(
        "recover without CRCs",
        "recovery: the first batch that is not what its CRC says ends the log",
        ((recovery, "sound_prefix", _sound_without_crc),),
        50,
        tuple(Fault(500 + 900 * number, "crash", (f"node-{1 + number % 3}",), 100) for number in range(6)),
        (OPENED, "logs are whole at rest", "BrokenPromise", USERS),
        ("pipelines",),
    ),
    PlantedBug(
        "take a cleaning's gaps for a lost end",
        "recovery: below the cleaner's checkpoint gaps are compaction's",
        ((DirectoryState, "saved_gaps_offset", lambda directory, key: -1),),
        1,
        (
            *(Fault(1500, "kill", (name,), 3000) for name in ("node-1", "node-2")),
            Fault(4000, LOST, ("node-3", RECOVERY_POINTS, GONE), 200),
        ),
        ("a leader has every committed record",),
        ("checkpoints", "compaction"),
    ),
    PlantedBug(
        "leave the recovery point above a cut",
        "truncation: what is written behind it is scanned after a crash",
        (
            (truncation, "_lower_recovery_point", _lowers_the_start_alone),
            (truncation, "_forget_behind", _forgets_all_but_the_point),
        ),
        102,
        (
            *split_off(800, ARRIVALS_LEADER, 2200),
            Fault(1500, "isolate", ("harness",), 2090),
            Fault(3050, "slow-disk", (f"node-{ARRIVALS_LEADER}", 300), 1800),
            Fault(4075, "crash", (f"node-{ARRIVALS_LEADER}",), 200),
        ),
        (OPENED,),
        ("pipelines",),
    ),
    PlantedBug(
        "take the log of an earlier topic of the name over",
        "LogManager.get_or_create: a log belongs to a topic id",
        ((LogManager, "get_or_create", _takes_over), (LogManager, "strays", _knows_none)),
        1,
        (Fault(900, "kill", ("node-3",), 3000),),
        ("a log belongs to one topic",),
        ("topics",),
    ),
    PlantedBug(
        "accept a repeated sequence",
        "ProducerStateManager.check: a batch that came before is answered, not written",
        ((ProducerStateManager, "check", _accepts_all),),
        1,
        STALLED,
        ("BrokenPromise",),
        ("pipelines",),
    ),
    PlantedBug(
        "answer a repetition with the log's end",
        "LeaderLog._answer_duplicate: with the offsets that the batch has",
        ((Log, "_answer_duplicate", _answers_with_the_end),),
        1,
        STALLED,
        ("BrokenPromise", COMMITTED, HEALS),
        ("pipelines",),
    ),
    PlantedBug(
        "end an epoch one record late",
        "LeaderEpochCache.end_offset_for: where the next one begins",
        ((LeaderEpochCache, "end_offset_for", _one_more),),
        1,
        split_off(800, ARRIVALS_LEADER, 2200),
        (EQUAL, "a leader has every committed record", HEALS),
        ("pipelines",),
    ),
    PlantedBug(
        "keep epochs that were cut off",
        "LeaderEpochCache.truncate_from_end: epochs go with their records",
        ((LeaderEpochCache, "truncate_from_end", _keeps_epochs),),
        14,
        LEADS_AGAIN,
        (EQUAL, "a leader has every committed record", HEALS),
        ("pipelines",),
    ),
    PlantedBug(
        "look one index entry too far",
        "OffsetIndex.floor: the last entry at or below the offset",
        ((OffsetIndex, "floor", _one_further),),
        1,
        (Fault(500, "kill", ("node-3",), 300),),
        (USERS, EQUAL, "a leader has every committed record"),
        ("readers",),
    ),
)
