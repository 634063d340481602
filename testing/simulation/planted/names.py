"""What is believed of a log because of its name."""

from ottla.log.durable_log import DurableLog
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.log.root_checkpoints import Position, ReadPositions, RootCheckpoints
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug

_ONE_ID = b"1" * 16  # every topic's
_OF = ReadPositions.of

DEATHS = tuple(Fault(2_000 * number, "kill", (f"node-{node}",), 60) for number in range(1, 5) for node in (1, 2, 3))
"""All nodes in the same moment: what is on disk then is all there is."""


def _key(log: DurableLog) -> TopicIdPartition:
    return TopicIdPartition(log.partition, _ONE_ID)


def _position(saved: ReadPositions, partition: TopicPartition, topic_id: bytes | None) -> Position:
    return _OF(saved, partition, _ONE_ID)


NAMES = (
    PlantedBug(
        "believe what was written about an earlier topic of the name",
        "what the checkpoints of offsets say is of one log of one topic (owned_offsets, RootCheckpoints.make_way)",
        (
            (DurableLog, "key", property(_key)),  # type: ignore[arg-type]  # it is called like one
            (ReadPositions, "of", _position),
            (RootCheckpoints, "make_way", lambda *_: None),
            (RootCheckpoints, "drop_gone", lambda _: True),
        ),
        1,
        DEATHS,
        ("when faults end, the cluster heals", "BrokenPromise", "users get answers a correct cluster gives"),
        ("names",),
    ),
)
