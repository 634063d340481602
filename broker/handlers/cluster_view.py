"""What a client sees of the cluster through one listener: rules shared by the APIs that describe topics.

Source: Kafka's KRaftMetadataCache. A broker that is fenced, or has no endpoint on the asked listener, is not there.

Two hints for clients whose leader died, so that they find the next one soon:

- Who asks in the moment between its death and its fencing is told of no leader, by a follower whose connection it closed:
  then every client asks again after `retry.backoff.ms`. Told of the dead leader again, librdkafka asks a second later.
- A broker that was just fenced is still named among the brokers. A librdkafka that hears of a partition's next leader, and in
  the same answer that the last one is no broker any more, drops the partition for a second (2.10 and later).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.replication.decisions.lately import NOBODY
from ottla.log.names import is_valid_topic_name
from ottla.quorum.metadata.views import NO_LEADER
from ottla.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.wire.produce_fast import NodeEndpoint
    from ottla.quorum.metadata.image import BrokerView, MetadataImage, PartitionView


class PartitionState(NamedTuple):
    """One partition as Metadata and DescribeTopicPartitions tell it."""

    error: ErrorCode
    leader: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


def node_endpoints(image: "MetadataImage", broker_ids: Iterable[int], listener_name: str) -> "list[NodeEndpoint]":
    """Where clients of a listener find these brokers, fenced ones too."""
    found: dict[int, NodeEndpoint] = {}
    for broker_id in broker_ids:
        broker = image.brokers.get(broker_id)
        address = broker.address_on(listener_name) if broker is not None else None
        if broker is not None and address is not None:
            found[broker_id] = (broker_id, *address, broker.rack)
    return list(found.values())


def reachable_brokers(image: "MetadataImage", listener_name: str) -> "dict[int, BrokerView]":
    """The brokers a client of that listener can be sent to, by id, ascending."""
    return named_brokers(image, listener_name, NOBODY)


def named_brokers(image: "MetadataImage", listener_name: str, fenced_lately: frozenset[int]) -> "dict[int, BrokerView]":
    """The brokers that Metadata names: those that can be reached, and could be a moment ago."""
    return {
        broker_id: broker
        for broker_id, broker in sorted(image.brokers.items())
        if (not broker.fenced or broker_id in fenced_lately) and broker.address_on(listener_name) is not None
    }


def partition_state(
    partition: "PartitionView",
    reachable: "dict[int, BrokerView]",
    known: "dict[int, BrokerView]",
    *,
    lost: frozenset[int] = NOBODY,
    hide_unreachable: bool = False,
    name_missing_listener: bool = True,
) -> PartitionState:
    """A partition's state. ``lost``: leaders that just closed their connection to this node; for a client there is none.

    ``hide_unreachable``: Metadata version 0 lists only replicas that can be reached.

    ``name_missing_listener``: from Metadata version 6 on, a leader without our listener has an error of its own.
    """
    replicas, isr = list(partition.replicas), list(partition.isr)
    offline = _offline(partition, reachable)
    if hide_unreachable:
        replicas = [each for each in replicas if each in reachable]
        isr = [each for each in isr if each in reachable]
    if partition.leader in reachable and partition.leader not in lost:
        complete = len(replicas) == len(partition.replicas) and len(isr) == len(partition.isr)
        error = ErrorCode.NONE if complete else ErrorCode.REPLICA_NOT_AVAILABLE
        return PartitionState(error, partition.leader, replicas, isr, offline)
    leader = known.get(partition.leader)
    is_there = leader is not None and not leader.fenced and partition.leader not in lost
    lacks_listener = is_there and name_missing_listener
    error = ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
    return PartitionState(error, NO_LEADER, replicas, isr, offline)


def _offline(partition: "PartitionView", reachable: "dict[int, BrokerView]") -> list[int]:
    """Replicas on brokers that cannot be reached, or in a directory that failed."""
    if not partition.directories:
        return [each for each in partition.replicas if each not in reachable]
    return [
        each
        for each, directory in zip(partition.replicas, partition.directories, strict=True)
        if each not in reachable or not reachable[each].has_directory(directory)
    ]


def missing_topic_error(name: str) -> ErrorCode:
    """Why a topic of that name is not there."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION


def duplicates(names: Iterable[str]) -> dict[str, None]:
    """The names that come more than once, in order."""
    seen: dict[str, None] = {}
    twice: dict[str, None] = {}
    for name in names:
        (twice if name in seen else seen)[name] = None
    return twice
