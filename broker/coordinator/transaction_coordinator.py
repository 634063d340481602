"""The transactional ids that this broker coordinates: a shard for each partition of `__transaction_state` that it leads."""

from collections.abc import Callable

from ottla.broker.coordinator.coordinator import Coordinator, Topics
from ottla.broker.coordinator.decisions.transactions.counts import TransactionCounts
from ottla.broker.coordinator.decisions.transactions.effects import Markers
from ottla.broker.coordinator.decisions.transactions.settings import TransactionSettings
from ottla.broker.coordinator.decisions.transactions.shard import TransactionShard
from ottla.broker.coordinator.shard_host import ShardHost, Surroundings
from ottla.broker.internal_topics import TRANSACTIONS
from ottla.broker.producer_ids import OnProducerId
from ottla.quorum.controller.decisions.features import TRANSACTION_VERSION
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.settings.server import ServerConfig

Allocate = Callable[[OnProducerId], None]


class TransactionCoordinator(Coordinator[TransactionShard, TransactionCounts]):
    topic = TRANSACTIONS
    keeps = "transactional id"

    def __init__(
        self,
        config: ServerConfig,
        image: MetadataImage,
        surroundings: Surroundings,
        markers: Markers,
        allocate: Allocate,
    ) -> None:
        super().__init__(image, surroundings, TransactionCounts())
        self._settings = transaction_settings(config)
        self._node = _Node(image, markers, allocate)
        self._late_interval_ms = config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._expiry_interval_ms = config.integer("transaction.remove.expired.transaction.cleanup.interval.ms")

    def _shard(self, host: ShardHost, leader_epoch: int) -> TransactionShard:
        return TransactionShard(host, self._settings, self._node, leader_epoch)

    def _counts_of(self, shard: TransactionShard) -> TransactionCounts:
        return shard.counts()

    def has(self, topic: str, index: int) -> bool:
        """Whether there is such a partition."""
        return self._node.has(topic, index)

    def start(self) -> None:
        self._repeated.every(self._late_interval_ms, self._abort_late)
        self._repeated.every(self._expiry_interval_ms, self._expire)

    def _abort_late(self) -> None:
        for shard in self.shards():
            shard.abort_late()

    def _expire(self) -> None:
        for shard in self.shards():
            shard.expire()


class _Node(Topics):
    """What the shards know of their node (`Node`)."""

    def __init__(self, image: MetadataImage, markers: Markers, allocate: Allocate) -> None:
        super().__init__(image)
        self.markers = markers
        self.allocate = allocate

    @property
    def transaction_version(self) -> int:
        return self._image.features.get(TRANSACTION_VERSION, 0)


def transaction_settings(config: ServerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        two_phases=config.flag("transaction.two.phase.commit.enable"),
    )
