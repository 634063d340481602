"""What a broker coordinates, groups and transactions, put together, and how it asks the brokers that coordinate others."""

from collections.abc import Callable
from functools import partial

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.group_coordinator import GroupCoordinator
from ottla.broker.coordinator.marker_sender import MarkerSender
from ottla.broker.coordinator.placement import coordinator_of
from ottla.broker.coordinator.shard_host import Surroundings
from ottla.broker.coordinator.transaction_coordinator import TransactionCoordinator
from ottla.broker.handlers.fetching.cold_reads import ColdReads
from ottla.broker.handlers.transactions import Coordinators
from ottla.broker.handlers.write_txn_markers import write_one
from ottla.broker.internal_topics import GROUPS, TRANSACTIONS, InternalTopics
from ottla.broker.links.peers import Peers
from ottla.broker.links.verifier import Verifier
from ottla.broker.node_settings import NodeSettings
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.verifications import Verifications
from ottla.quorum.controller.channel import ControllerChannel
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.runtime.host import Host
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers

VERIFICATION = "transaction.partition.verification.enable"


class Coordination:
    """The two coordinators, the topics in which they keep what they know, and what they need of other nodes."""

    def __init__(
        self,
        config: ServerConfig,
        host: Host,
        timers: LoopTimers,
        loader: MetadataLoader,
        channel: ControllerChannel,
        replicas: ReplicaManager,
        cold_reads: ColdReads,
        broker_epoch: Callable[[], int],
        context: Callable[[], BrokerContext],
    ) -> None:
        """``context``: the broker's, which is made with this."""
        image = loader.image
        timeout_ms = config.integer("offsets.commit.timeout.ms")
        surroundings = Surroundings(
            timers, host.clock, host.rng, cold_reads, timeout_ms, note_damage=replicas.note_damage
        )
        self._loader = loader
        self._replicas = replicas
        self.groups = GroupCoordinator(config, image, surroundings)
        self.producer_ids = ProducerIds(channel, config.node_id, broker_epoch)
        self.markers = MarkerSender(config, image, timers, lambda *marker: write_one(context(), *marker))
        self.transactions = TransactionCoordinator(
            config, image, surroundings, self.markers, self.producer_ids.allocate
        )
        self._peers = Peers(config, image, timers, "coordinators")
        coordinators = Coordinators(self._peers, context)
        verifier = Verifier(
            coordinators,
            partial(coordinator_of, image, TRANSACTIONS),
            timers,
            retry_ms=config.integer("add.partitions.to.txn.retry.backoff.ms"),
            retry_ms_max=config.integer("add.partitions.to.txn.retry.backoff.max.ms"),
            verify_here=coordinators.verify_here,
        )
        self.verifications = Verifications(verifier, timers, is_enabled=config.flag(VERIFICATION))
        self.topics = InternalTopics(channel, config, image, timers, config.node_id)

    def listen(self) -> None:
        """Hears of the metadata from now on."""
        for publisher in (self.topics, self.groups, self.markers, self._peers):
            self._loader.add_publisher(publisher)

    def start(self, config: ServerConfig, settings: NodeSettings) -> None:
        """Takes up what the partitions hold that this broker leads."""
        self._replicas.listen(GROUPS, self.groups)
        self._replicas.listen(TRANSACTIONS, self.transactions)
        self.groups.start()
        self.transactions.start()
        self.verifications.start(
            config.integer("producer.id.expiration.check.interval.ms"),
            lambda: settings.current.integer("producer.id.expiration.ms"),
        )

    def configure(self, config: ServerConfig) -> None:
        """Settings changed while the node runs."""
        self.verifications.is_enabled = config.flag(VERIFICATION)

    def stop(self) -> None:
        """Asks nobody any more. Groups are coordinated until the replicas stop, which resigns them all; then comes `close`."""
        self.verifications.stop()
        self._peers.close()
        self.topics.close()
        self.transactions.stop()
        self.markers.close()

    def close(self) -> None:
        """Nothing is coordinated any more, and nothing is left to a timer of a process that lives on."""
        self.groups.stop()
