"""Consumers that read from followers (KIP-392)."""

from collections.abc import Iterator

from ottla.broker.handlers.fetching import fetch_read
from ottla.broker.handlers.fetching.fetch_read import Reader
from ottla.broker.handlers.fetching.read_replicas import ReadReplicas
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.read_replicas import ReadReplica
from ottla.broker.replication.partition import Partition
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug
from ottla.testing.simulation.roles import follower_of, other_follower_of

_LIMIT_FOR = fetch_read.limit_for
GIVEN = "users get answers a correct cluster gives"
PAUSED = tuple(Fault(400 + 1_500 * index, "pause", (follower_of("flights", index),), 1_200) for index in range(3))
ALONE = (
    Fault(1_000, "kill", (follower_of("flights", 2),), 3_500),
    Fault(1_030, "kill", (other_follower_of("flights", 2),), 3_000),
)
"""Nobody writes then, so that who is gone has all there is."""


def _shows_all_of_a_follower(partition: Partition, reader: Reader) -> int:
    return _LIMIT_FOR(partition, reader) if partition.leader is not None else partition.log.log_end_offset


def _sends_to_whoever_had_it(
    replicas: ReadReplicas, leader: PartitionLeader, offset: int, listener_name: str
) -> Iterator[ReadReplica]:
    for id, replica in leader.replicas.items():
        broker = replicas._image.brokers.get(id)
        if broker is not None and replica.log_start_offset <= offset <= replica.log_end_offset:
            yield ReadReplica(id, broker.rack, replica.log_end_offset, replica.last_caught_up_ms)


NEAR = (
    PlantedBug(
        "show consumers a follower's log's end",
        "fetch_read.limit_for: a follower serves consumers up to its high watermark",
        ((fetch_read, "limit_for", _shows_all_of_a_follower),),
        1,
        PAUSED,
        (GIVEN,),
        ("near",),
    ),
    PlantedBug(
        "send consumers to who is not in sync",
        "ReadReplicas._holders: in sync, in service, and so far",
        ((ReadReplicas, "_holders", _sends_to_whoever_had_it),),
        1,
        ALONE,
        (GIVEN,),
        ("near",),
    ),
)
