"""What a handler may reach: the parts of the node it runs in."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.runtime.host import Host
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers

if TYPE_CHECKING:
    from ottla.broker.controller_errand import Controller
    from ottla.broker.coordinator.group_coordinator import GroupCoordinator
    from ottla.broker.coordinator.transaction_coordinator import TransactionCoordinator
    from ottla.broker.handlers.fetching.cold_reads import ColdReads
    from ottla.broker.handlers.time_searches import TimeSearches
    from ottla.broker.internal_topics import InternalTopics
    from ottla.broker.moves import DirectoryMoves
    from ottla.broker.producer_ids import ProducerIds
    from ottla.broker.quorum_view import QuorumView
    from ottla.broker.replication.replica_manager import ReplicaManager
    from ottla.broker.replication.verifications import Verifications
    from ottla.log.directories.manager import LogManager
    from ottla.quorum.controller.channel import ControllerChannel
    from ottla.quorum.metadata.image import MetadataImage
    from ottla.quorum.node import QuorumNode


@dataclass(slots=True, kw_only=True)
class NodeContext:
    """What brokers and controllers have both. Put together once, when the node starts. ``image`` is the node's own: it changes as the
    metadata log is applied."""

    config: ServerConfig
    image: "MetadataImage"
    controller: "Controller"
    quorum: "QuorumNode"
    quorum_view: "QuorumView"
    node_id: int
    cluster_id: str
    sends_on: bool = True
    """Whether what others decide is asked of them. A controller's listener says instead who is not the one to be asked, as Kafka's
    does: its clients go by DescribeCluster, and a second controller in between would only hide that they look in the wrong place."""


@dataclass(slots=True, kw_only=True)
class BrokerContext(NodeContext):
    """The broker's parts."""

    host: Host
    timers: LoopTimers
    controller: "ControllerChannel"
    replicas: "ReplicaManager"
    cold_reads: "ColdReads"
    time_searches: "TimeSearches"
    internal_topics: "InternalTopics"
    producer_ids: "ProducerIds"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    verifications: "Verifications"
    logs: "LogManager"
    moves: "DirectoryMoves"
