"""``replica.selector.class``: consumers that name their rack (``client.rack``) are sent to a replica near them (KIP-392).

Looked at by leaders only, when a partition has to be looked at anyway; a node without the setting, and a consumer without a rack,
pay one comparison a fetch. A follower serves consumers up to its own high watermark, which trails the leader's by a fetch.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.fetch_tuples import FetchedPartition, FetchPartition
from ottla.broker.handlers.fetching.fetch_read import FIRST_FROM_FOLLOWERS, NO_RECORDS
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.read_replicas import ReadReplica, nearest
from ottla.broker.replication.partition import Partition
from ottla.runtime.settings.server import ServerConfig

if TYPE_CHECKING:
    from ottla.quorum.metadata.image import MetadataImage

RACK_AWARE = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "rack-aware")

NearTo = Callable[[Partition, FetchPartition], int]
"""The replica to read from: a broker id, -1 for this one."""


class ReadReplicas:
    """One a node."""

    def __init__(self, config: ServerConfig, image: "MetadataImage") -> None:
        self._on = config.string("replica.selector.class") in RACK_AWARE
        self._image = image
        self._node_id = config.node_id

    def near(self, rack: str, version: int, listener_name: str) -> NearTo | None:
        """The choice for one consumer; None where there is none to make."""
        if not self._on or not rack or version < FIRST_FROM_FOLLOWERS or rack == self._own_rack():
            return None
        return lambda partition, wanted: self._choose(partition, wanted, rack, listener_name)

    def _own_rack(self) -> str | None:
        broker = self._image.brokers.get(self._node_id)
        return broker.rack if broker is not None else None

    def _choose(self, partition: Partition, wanted: FetchPartition, rack: str, listener_name: str) -> int:
        leader = partition.leader
        if leader is None or not partition.usable:
            return -1
        own = ReadReplica(leader.node_id, self._own_rack(), leader.log_end_offset, 0)
        chosen = nearest(rack, own, self._holders(leader, wanted[2], listener_name))
        return -1 if chosen == leader.node_id else chosen

    def _holders(self, leader: PartitionLeader, offset: int, listener_name: str) -> Iterator[ReadReplica]:
        """Followers in sync that have the offset, run, and can be reached where the consumer is."""
        for id, replica in leader.replicas.items():
            broker = self._image.brokers.get(id)
            if broker is None or broker.fenced or id not in leader.committed_isr:
                continue
            if replica.log_start_offset <= offset <= replica.log_end_offset and broker.address_on(listener_name):
                yield ReadReplica(id, broker.rack, replica.log_end_offset, replica.last_caught_up_ms)


def elsewhere(partition: Partition, wanted: FetchPartition, replica_id: int) -> FetchedPartition:
    """The answer that sends a consumer to another replica. Raises KafkaError: its idea of the leader is out of date."""
    partition.require_epoch(wanted[1])
    log = partition.log
    offsets = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
    return (wanted[0], 0, *offsets, None, replica_id, NO_RECORDS, None, None, None)
