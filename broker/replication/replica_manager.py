"""Every partition this broker hosts, kept as the metadata log says.

A metadata publisher: of each stretch of the log it applies what concerns this broker: deletions first, then what it leads,
then what it follows. Its timers look only at partitions that may need it. No loop over all partitions, ever.
"""

import logging
from collections.abc import Iterable
from random import Random

import msgspec

from ottla.broker.controller_errand import Controller
from ottla.broker.replication.decisions.fetch_session import SessionCache
from ottla.broker.replication.decisions.isr import Proposal
from ottla.broker.replication.decisions.lately import Lately
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.decisions.throttle import ReplicationThrottle
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.following.fetchers import Fetchers
from ottla.broker.replication.following.leader import OpenLeader
from ottla.broker.replication.hosting import CREATION_COST, ROLE_COST, TURN_COST, HostingQueue, Key, Replica, replica_of
from ottla.broker.replication.joining import consider_shrink, retry_joins
from ottla.broker.replication.listeners import TopicListener, TopicListeners
from ottla.broker.replication.log_store import LogStore
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.reports.alter_partition import AlterPartitionQueue
from ottla.broker.replication.reports.assignments import AssignmentQueue
from ottla.broker.replication.reports.handing_over import HandingOver
from ottla.broker.replication.reports.healing import Healing
from ottla.broker.replication.reports.offline import RETRY_MS as OFFLINE_RETRY_MS
from ottla.broker.replication.reports.offline import OfflineReplicas, is_expected
from ottla.broker.replication.settings import ReplicationSettings
from ottla.broker.replication.traffic import Traffic
from ottla.broker.topic_config import LogConfigs, concern_node
from ottla.log.config import LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import DIRECTORY_ALWAYS_ONLINE, NO_LEADER, TOPIC_RESOURCE, PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.identifiers import ZERO_ID
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.timers import LoopTimers, Repeated

JOIN_RETRY_MS = 500
FENCED_LATELY_MS = 3_000
"""A client that lost its leader asks for the next one within a second, unless it or this node is very busy."""
SESSION_EVICTION_MS = 120_000

logger = logging.getLogger(__name__)


class ReplicaManager:
    """The broker's partitions. ``partitions`` finds them by (topic name, index) and by (topic id, index)."""

    def __init__(
        self,
        config: ServerConfig,
        logs: LogStore,
        timers: LoopTimers,
        controller: Controller,
        rng: Random,
        wakes: WakeQueue,
        sync_later: SyncLater,
        open_leader: OpenLeader,
    ) -> None:
        self.node_id = config.node_id
        self.broker_epoch = -1  # set by the lifecycle when the broker is registered
        self.timers = timers
        self.partitions: dict[tuple[str | bytes, int], Partition] = {}
        self.brokers: dict[int, BrokerStanding] = {}
        self.settings = ReplicationSettings.of(config)
        self.sessions = SessionCache(
            self.settings.session_slots, SESSION_EVICTION_MS, lambda: rng.randrange(1, 2**31 - 1)
        )
        self.traffic = Traffic()
        self.leader_throttle, self.follower_throttle = ReplicationThrottle(), ReplicationThrottle()
        self.set_throttles(config)
        self._configs = LogConfigs(config)
        self._logs = logs
        self._image: MetadataImage | None = None
        self.isr_changes = AlterPartitionQueue(controller, self.node_id, self._epoch, timers)
        self._assignments = AssignmentQueue(controller, self.node_id, self._epoch, timers)
        self._durability = durability = Durability(sync_later)
        self.healing = Healing(controller, self.node_id, self._epoch, timers)
        self._handing_over = HandingOver(controller, self.node_id, self._epoch, timers)
        self._services = PartitionServices(
            self.node_id,
            wakes,
            durability,
            timers.now_ms,
            self._propose,
            self.note_damage,
            self._handing_over.failed,
        )
        self._fetchers = Fetchers(
            self.settings.fetcher, timers, durability, self._epoch, self.traffic, open_leader, self.follower_throttle
        )
        self._hosting = HostingQueue(timers, self._host_waiting)
        self._listeners = TopicListeners()
        self.offline = OfflineReplicas(self._hosting.add, self._assignments.submit)
        self._started = self._stopped = False
        self._repeated = Repeated(timers)
        self._lag_checked_ms = 0
        self._fenced_lately = Lately(FENCED_LATELY_MS)

    def start(self) -> None:
        """From here on others are served: what changes at once for many partitions is taken in over turns of the loop."""
        self._started = True
        self._lag_checked_ms = self.timers.now_ms()
        self._repeated.every(max(1, self.settings.lag_time_max_ms // 2), self._check_lag)
        self._repeated.every(JOIN_RETRY_MS, self._retry_joins)
        self._repeated.every(OFFLINE_RETRY_MS, self.offline.retry)
        self._repeated.every(OFFLINE_RETRY_MS, self._durability.retry)
        self._repeated.every(self.settings.checkpoint_interval_ms, self._logs.checkpoint_high_watermarks)

    def stop(self) -> None:
        """Stops fetching and asking. Requests still parked are answered or dropped by their connections. Whoever closes the logs, on a
        thread, is alone with them: no metadata that come meanwhile are followed, and nothing that was under way is written or cut."""
        self._stopped = True
        self._repeated.cancel()
        self._hosting.clear()
        self._listeners.close()
        self._fetchers.close()
        self.isr_changes.close()
        self._assignments.close()
        self._services.preparers.close()
        self.healing.close()
        self._handing_over.close()

    def listen(self, topic: str, listener: TopicListener) -> None:
        """Tells it from now on which partitions of that topic this broker leads; at once of those that it leads now."""
        view = self._image.topics_by_name.get(topic) if self._image is not None else None
        hosted = [self.partitions.get((view.id, index)) for index in view.partitions] if view is not None else []
        self._listeners.add(topic, listener, [each for each in hosted if each is not None])

    def set_throttles(self, config: ServerConfig) -> None:
        """The rates at which replicas that catch up are fed, and fetch."""
        self.leader_throttle.rate = config.integer("leader.replication.throttled.rate")
        self.follower_throttle.rate = config.integer("follower.replication.throttled.rate")

    # What handlers ask.

    def lost_leaders(self) -> frozenset[int]:
        """Leaders that this broker follows, and that just closed their connection to it."""
        return self._fetchers.lost_leaders()

    def fenced_lately(self) -> frozenset[int]:
        """Brokers that were in service a moment ago, as this one has read the metadata."""
        return self._fenced_lately.at(self.timers.now_ms())

    def missing_error(self, topic: str | bytes, index: int) -> ErrorCode:
        """Why a partition is not in ``partitions``."""
        if (topic, index) in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        view = self._view(topic, index)
        if view is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(topic, bytes) and (self._image is None or topic not in self._image.topics_by_id):
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def leader_of(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """(leader id, leader epoch) for a client that came to the wrong broker (KIP-951)."""
        view = self._view(topic, index)
        return (view.leader, view.leader_epoch) if view is not None else None

    def _view(self, topic: str | bytes, index: int) -> PartitionView | None:
        if self._image is None:
            return None
        by_id = isinstance(topic, bytes)
        found = self._image.topics_by_id.get(topic) if by_id else self._image.topics_by_name.get(topic)  # type: ignore[arg-type]  # isinstance said which
        return found.partitions.get(index) if found is not None else None

    # Metadata.

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Applies a stretch of the metadata log."""
        if self._stopped:
            return
        self._image = image
        self._apply_brokers(delta, image)
        for topic in delta.deleted_topics.values():
            for index in topic.partitions:
                self._drop((topic.id, index), topic.name)
        if (
            delta.configs
        ):  # first: a smaller ISR may come with more replicas that have to be in sync, not the other way round
            self._apply_configs(delta, image)
        self._take_on(self._sort(delta, image))

    def _take_on(self, replicas: list[Replica]) -> None:
        """Hosts replicas at once, unless they are many; one that waits goes on waiting, and is then what the image says."""
        unknown = sum(replica.key not in self.partitions for replica in replicas)
        many = self._started and unknown * CREATION_COST + len(replicas) * ROLE_COST > TURN_COST
        for replica in replicas:
            if many or replica.key in self._hosting:
                self._hosting.add(replica.key, replica.is_new)
            else:
                self._host(replica)

    def _host_waiting(self, key: Key, is_new: bool) -> int:
        assert self._image is not None, "it came with an image"
        replica = replica_of(key, self._image, self.node_id)
        if replica is None:
            return 0
        known = key in self.partitions
        self._host(msgspec.structs.replace(replica, is_new=is_new))
        return ROLE_COST if known else CREATION_COST

    def _apply_brokers(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for broker_id in delta.brokers:
            broker = image.brokers.get(broker_id)
            if broker is None:
                self.brokers.pop(broker_id, None)
                self._fetchers.move(broker_id, None)
                continue
            self._note_fencing(broker_id, fenced=broker.fenced)
            self.brokers[broker_id] = BrokerStanding(broker.epoch, broker.fenced, broker.in_controlled_shutdown)
            self._fetchers.move(broker_id, broker.address_on(self.settings.listener_name))
        if delta.brokers:
            self._retry_joins()

    def _note_fencing(self, broker_id: int, *, fenced: bool) -> None:
        before = self.brokers.get(broker_id)
        if not fenced:
            self._fenced_lately.forget(broker_id)
        elif before is not None and not before.fenced:
            self._fenced_lately.note(broker_id, self.timers.now_ms())

    def _sort(self, delta: MetadataDelta, image: MetadataImage) -> list[Replica]:
        """What this broker leads, then what it follows, of the partitions that changed; drops what it has no more."""
        leads: list[Replica] = []
        follows: list[Replica] = []
        for key in delta.partitions:
            replica = replica_of(key, image, self.node_id)
            if replica is not None:
                (leads if replica.view.leader == self.node_id else follows).append(replica)
            elif key in self.partitions or key in self.offline or key in self._hosting:
                topic = image.topics_by_id.get(key[0])
                if topic is not None:  # else it was dropped with its topic
                    self._drop(key, topic.name)
        return leads + follows

    def _drop(self, key: Key, topic: str) -> None:
        partition = self.partitions.pop(key, None)
        if partition is None and key not in self._hosting and key not in self.offline:
            return
        self._hosting.discard(key)
        self.offline.forget(key)
        if partition is not None:
            self.partitions.pop((topic, key[1]), None)
            self._fetchers.remove(partition)
            partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._listeners.gone(partition)
        self._delete_log(topic, key)

    def _delete_log(self, topic: str, key: Key) -> None:
        """There may be one also of a replica that could not be hosted yet."""
        topic_id, index = key
        logger.info("Deleting %s-%d", topic, index)
        try:
            self._logs.delete(TopicPartition(topic, index), topic_id)
        except Exception as error:
            logger.error("Could not delete %s-%d: %s", topic, index, error, exc_info=not is_expected(error))

    def _host(self, replica: Replica) -> None:
        """Gives the replica its role, creating its log if there is none. What fails costs this partition only, whatever it is."""
        view, partition = replica.view, self.partitions.get(replica.key)
        try:
            if partition is None:
                partition = self._create(replica)
            if partition.usable:  # else its directory failed: it is lost until the broker starts again
                (self._lead if view.leader == self.node_id else self._follow)(partition, view)
                self._tell_directory(partition, view, self.offline.came_from(replica.key))
        except Exception as error:  # noqa: BLE001 - `note` says what it was
            is_lost = partition is None and self._is_counted_on(replica)
            self.offline.note(replica.key, replica.topic, error, is_new=replica.is_new, is_lost=is_lost)
        else:
            self.offline.forget(replica.key)
        if partition is not None:
            self._listeners.look_at(partition)

    def _is_counted_on(self, replica: Replica) -> bool:
        """Whether the controller takes the replica for sound until it hears of it. Of a directory that is not there, or failed, it
        hears as such: that may come back whole, and a replica in no directory would have led last for nothing. Nor need it hear of one
        that is alone in sync, in a directory that is there: nobody else could lead, and what it has may lie in one that failed."""
        view = replica.view
        directory_id = view.directory_of(self.node_id)
        if directory_id in DIRECTORY_ALWAYS_ONLINE:
            return True
        others = any(each != self.node_id for each in (*view.isr, *view.elr))
        return others and self._logs.reads(directory_id)

    def _tell_directory(self, partition: Partition, view: PartitionView, came_from: tuple[bytes, ...] = ()) -> None:
        log, known = partition.log, view.directory_of(self.node_id)
        directory_id = log.root.directory_id
        if directory_id != ZERO_ID:
            earlier = log.moved_from + came_from
            self._assignments.submit(partition.topic_id, partition.index, directory_id, known, earlier)

    def _create(self, replica: Replica) -> Partition:
        assert self._image is not None, "replicas come with an image"
        config = self._log_config(replica.topic, self._image)
        log = self._logs.get_or_create(
            TopicPartition(replica.topic, replica.index),
            config,
            replica.topic_id,
            replica.view.directory_of(self.node_id),
            is_new=replica.is_new,
        )
        if log.config != config:
            log.configure(config)  # it was there, with settings from when this broker last read them
        partition = Partition(replica.topic, replica.index, replica.topic_id, log, self._services)
        self.partitions[replica.topic_id, replica.index] = partition
        self.partitions[replica.topic, replica.index] = partition
        return partition

    def _lead(self, partition: Partition, view: PartitionView) -> None:
        self._fetchers.remove(partition)
        partition.lead(
            self.node_id,
            leader_epoch=view.leader_epoch,
            partition_epoch=view.partition_epoch,
            isr=view.isr,
            replicas=view.replicas,
            brokers=self.brokers,
            lag_time_max_ms=self.settings.lag_time_max_ms,
            now_ms=self.timers.now_ms(),
        )

    def _follow(self, partition: Partition, view: PartitionView) -> None:
        anew = partition.follow(
            view.leader,
            leader_epoch=view.leader_epoch,
            partition_epoch=view.partition_epoch,
            isr=view.isr,
            replicas=view.replicas,
            backoff_max_ms=self.settings.fetcher.backoff_ms,
            elr=view.elr,
        )
        if anew:
            self._fetchers.remove(partition)
            if view.leader != NO_LEADER:
                self._fetchers.add(partition, view.leader, self._broker_address(view.leader))

    def _broker_address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._image.brokers.get(broker_id) if self._image is not None else None
        return broker.address_on(self.settings.listener_name) if broker is not None else None

    # Configuration.

    def _log_config(self, topic: str, image: MetadataImage) -> LogConfig:
        return self._configs.of_topic(topic, image.configs, self.node_id)

    def _apply_configs(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if concern_node(delta.configs, self.node_id):  # a default of all topics changed
            self._configure(
                [partition for key, partition in self.partitions.items() if isinstance(key[0], bytes)], image
            )
            return
        for kind, name in delta.configs:
            topic = image.topics_by_name.get(name) if kind == TOPIC_RESOURCE else None
            if topic is not None:
                hosted = (self.partitions.get((topic.id, index)) for index in topic.partitions)
                self._configure([each for each in hosted if each is not None], image)

    def _configure(self, partitions: list[Partition], image: MetadataImage) -> None:
        """Those alone that have other settings now: most that change for a broker are none of a log's, and a log reads its active segment."""
        for partition in partitions:
            try:
                config = self._log_config(partition.topic, image)
                if config != partition.log.config:
                    partition.configure(config, self.timers.now_ms(), is_behind=_is_behind(partition, image))
            except Exception as error:
                logger.error("Could not configure %s: %s", partition, error, exc_info=not is_expected(error))

    # Failures and timers.

    def directory_failed(self, partitions: Iterable[TopicPartition]) -> None:
        """The disk under these failed: they are offline until the broker starts again."""
        for name in partitions:
            partition = self.partitions.get((name.topic, name.partition))
            if partition is not None:
                self._fetchers.remove(partition)
                partition.retire(ErrorCode.KAFKA_STORAGE_ERROR)
                self._listeners.look_at(partition)

    def note_damage(self, partition: Partition, error: KafkaError) -> None:
        """What came of a read; if it was damage, the replica is to be healed from the partition's leader."""
        if isinstance(error, DamagedLogError):
            self.healing.found(partition, error)

    def damaged(self, name: TopicPartition, damage: DamagedLogError) -> None:
        """Damage that the scrub found."""
        partition = self.partitions.get((name.topic, name.partition))
        if partition is not None:
            self.healing.found(partition, damage)

    def log_moved(self, old: Log, new: Log) -> None:
        """The partition's log lies in another directory now."""
        name = new.partition
        partition = self.partitions.get((name.topic, name.partition))
        view = self._view(name.topic, name.partition)
        if partition is not None and partition.log is old:
            partition.log = new
            self._durability.moved(old)
            self._fetchers.log_moved(old, new)
            if view is not None:
                self._tell_directory(partition, view)

    def log_shortened(self, log: Log) -> None:
        """Retention took segments of it: followers hear with their next answers where it begins, though nobody writes to it."""
        name = log.partition
        partition = self.partitions.get((name.topic, name.partition))
        if partition is not None and partition.log is log:
            partition.watches.touch_all()

    def _epoch(self) -> int:
        return self.broker_epoch

    def _propose(self, partition: Partition, proposal: Proposal) -> None:
        self.isr_changes.submit(partition, proposal)

    def _check_lag(self) -> None:
        now_ms = self.timers.now_ms()
        slept_ms, self._lag_checked_ms = now_ms - self._lag_checked_ms, now_ms
        if 4 * slept_ms > 3 * self.settings.lag_time_max_ms:
            return  # it is this process that was away: the followers' fetches wait in its sockets
        for partition in list(self._services.behind):
            consider_shrink(partition, now_ms)

    def _retry_joins(self) -> None:
        now_ms = self.timers.now_ms()
        for partition in list(self._services.incomplete):
            retry_joins(partition, now_ms)


def _is_behind(partition: Partition, image: MetadataImage) -> bool:
    """Whether the image says more of the partition than it was told so far: of a snapshot settings are told first, the rest in pieces."""
    view = image.partition(partition.topic_id, partition.index)
    return view is None or view.partition_epoch > partition.partition_epoch
