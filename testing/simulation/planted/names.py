"""What is believed of a log because of its name, or of the offsets that it has."""

from ottla.broker.handlers.fetching import fetch_read
from ottla.log.directories.root_checkpoints import Position, ReadPositions, RootCheckpoints
from ottla.log.durable_log import DurableLog
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug

_ONE_ID = b"1" * 16  # every topic's
_OF = ReadPositions.of

DEATHS = tuple(Fault(2_000 * number, "kill", (f"node-{node}",), 60) for number in range(1, 5) for node in (1, 2, 3))
"""All nodes in the same moment: what is on disk then is all there is."""

LEADER, OTHER, CONTROLLER = "leader:flights:2", "third:flights:2", "controller"
SUCCEEDED = (
    Fault(467, "slow-link", (LEADER, CONTROLLER, 200, 250), 1_000),
    Fault(567, "cut", (LEADER, OTHER), 2_800),
    Fault(1_567, "slow-link", (CONTROLLER, OTHER, 100, 150), 3_000),
    *(Fault(1_801, "kill", (f"node-{node}",), 192) for node in (1, 2, 3)),
)
"""A leader has records that nobody else has when all die; another leads, and writes others in their place, which are deleted."""


def _key(log: DurableLog) -> TopicIdPartition:
    return TopicIdPartition(log.partition, _ONE_ID)


def _position(saved: ReadPositions, partition: TopicPartition, topic_id: bytes | None) -> Position:
    return _OF(saved, partition, _ONE_ID)


NAMES = (
    PlantedBug(
        "believe what was written about an earlier topic of the name",
        "what the checkpoints of offsets say is of one log of one topic (owned_offsets, RootCheckpoints.make_way)",
        (
            (DurableLog, "key", property(_key)),
            (ReadPositions, "of", _position),
            (RootCheckpoints, "make_way", lambda *_: None),
            (RootCheckpoints, "drop_gone", lambda _: True),
        ),
        2,
        DEATHS,
        ("when faults end, the cluster heals", "BrokenPromise", "users get answers a correct cluster gives"),
        ("names",),
    ),
    PlantedBug(
        "let a follower go on where its epoch was deleted",
        "a log is compared with one that has its epoch, or begins anew (divergence_from_deleted)",
        ((fetch_read, "divergence_from_deleted", lambda *_: None),),
        15,
        SUCCEEDED,
        ("replicas are equal up to the high watermark",),
        ("names",),
    ),
)
