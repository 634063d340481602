"""How long a run is: the usual one, or a brief one, of which there can be many."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.testing.simulation.workload import SMALL_SEGMENTS


class Length(NamedTuple):
    """``share`` of the usual time is what users take for what they do. ``topics``: settings of topics, as
    `create_topic` takes them; ``settings``: of all nodes, Kafka's names."""

    name: str
    faults_until_ms: int
    faults_max: int
    partitions: int
    """Of `flights`, each with a producer; none: there is no such topic."""
    producing_s: float
    """Between batches of the first of its producers; those of other topics are twice as slow at most."""
    share: float = 1.0
    topics: Mapping[str, str] = SMALL_SEGMENTS
    settings: Mapping[str, str] = {}

    def least_ms(self, wanted_ms: int) -> int:
        """How long users act who would like so long."""
        return min(wanted_ms, self.faults_until_ms)


USUAL = Length("cluster", 6_000, 8, 3, 0.04)
BRIEF = Length(
    "brief",
    1_000,
    3,
    0,
    0.25,
    0.2,
    {"retention_ms": "-1"},
    {
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "600",
        "replica.lag.time.max.ms": "600",
        "controller.quorum.election.timeout.ms": "300",
        "controller.quorum.fetch.timeout.ms": "500",
        "log.flush.offset.checkpoint.interval.ms": "2000",
        "metadata.log.max.record.bytes.between.snapshots": "100000",
        "group.min.session.timeout.ms": "200",
    },
)
"""Whatever takes long in a cluster takes less here: brokers are missed soon. Segments, snapshots and producers of what no group reads are left
to the others: files cost more than anything else."""
LENGTHS = {each.name: each for each in (USUAL, BRIEF)}
