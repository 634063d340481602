"""What the controller decides on: committed and pending records together, and who was heard from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import ENTRIES_MAX
from ottla.quorum.controller.decisions.replica_index import ReplicaIndex
from ottla.quorum.controller.decisions.sessions import BrokerSessions
from ottla.quorum.controller.decisions.topic_name_index import TopicNameIndex
from ottla.quorum.listener import QuorumMembers
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import (
    BROKER_RESOURCE,
    DIRECTORY_UNASSIGNED,
    TOPIC_RESOURCE,
    BrokerView,
    PartitionView,
    TopicView,
)
from ottla.runtime.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random  # given, never made here


UNCLEAN_ELECTION = "unclean.leader.election.enable"
LEADERLESS_SWEEP = "lead the leaderless uncleanly"


class ConfigRules(Protocol):
    """What may be configured. Resource types are Kafka's (2 topic, 4 broker, ...)."""

    def check(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        """Raises KafkaError (INVALID_CONFIG) when the resource may not have these settings, all together."""
        ...

    def list_default(self, resource_type: int, name: str) -> tuple[str, ...] | None:
        """The default of a setting that is a list; None when it is not one."""
        ...


class NoConfigRules:
    """`ConfigRules` that find no fault and know no lists."""

    def check(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None: ...

    def list_default(self, resource_type: int, name: str) -> tuple[str, ...] | None:
        return None


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller takes from its node's configuration; the names are Kafka's where it has one."""

    cluster_id: str
    node_id: int = -1
    """Of this controller: what its node's own dynamic settings say of topics goes before what is set for all nodes."""
    num_partitions: int = 1
    default_replication_factor: int = 1
    session_timeout_ms: int = 9000  # broker.session.timeout.ms
    inter_broker_listener: str = ""
    """Where brokers are reached by nodes; where they have none of that name, their first."""
    topic_defaults: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Topic settings as this node's file has them, for topics that do not set them."""
    config_rules: ConfigRules = NoConfigRules()
    partitions_per_request_max: int = 10_000
    entries_per_request_max: int = ENTRIES_MAX
    records_per_batch_max: int = 500
    batch_bytes_max: int = 1 << 20
    rebalance_interval_ms: int = (
        300_000  # leader.imbalance.check.interval.seconds; 0: auto.leader.rebalance.enable=false
    )
    imbalance_percentage: int = 0  # leader.imbalance.per.broker.percentage
    unclean_interval_ms: int = 300_000  # unclean.leader.election.interval.ms


class ControllerState:
    """A fork of the committed image in which what is appended is applied at once, with what hangs on it.

    It lives as long as one leadership. When that ends the whole object is dropped, and with it everything that was not
    committed; the committed image never saw it. So nothing has to be undone, and nothing can be forgotten in undoing.
    """

    def __init__(self, image: MetadataImage, settings: ControllerSettings, rng: "Random") -> None:
        """``image``: the committed one, which is forked. ``rng``: for placement and ids."""
        self.image = image.fork()
        self.settings = settings
        self.rng = rng
        self.members = QuorumMembers()  # as of the request or event that is decided on
        self.request_id = b""  # of the request that is decided on
        self.sessions = BrokerSessions(settings.session_timeout_ms)
        self.replicas = ReplicaIndex(self.image)
        self.names = TopicNameIndex(self.image)
        # For `chores`: what the controller before this one may have been interrupted in.
        brokers = self.image.brokers.values()
        self.leaving = dict.fromkeys(each.id for each in brokers if each.in_controlled_shutdown)
        self.returning = [active] if (active := tuple(each.id for each in brokers if each.is_active)) else []
        self.half_out: set[int] = set()
        """Brokers in service of which `take_out` has begun, and not ended. Who is heard from is spared."""
        self.going: set[int] = set()
        """Brokers that are being taken out to be registered anew, or forgotten, though they may be heard from."""
        self.failing: dict[int, tuple[bytes, ...]] = {}
        """Directories that a broker lost, which its registration still names: their last piece is yet to come."""
        self.reconsiders_leaderless = False
        self.under_way: dict[tuple[str, bytes], Any] = {}  # `pieces.Progress` by request

    def replay(self, record: pb.MetadataRecord) -> None:
        """The only way in which the state changes. Raises UnreadableRecordError: then the decider was wrong."""
        delta = MetadataDelta()
        self.image.apply(record, delta)
        self.replicas.update(delta)
        self.names.update(delta)
        for broker_id, before in delta.brokers.items():
            now = self.image.brokers.get(broker_id)
            self.failing.pop(broker_id, None)  # the next piece says so again, if there is one
            if now is None or now.fenced:
                self.half_out.discard(broker_id)
                self.going.discard(broker_id)
            if now is None:
                self.sessions.remove(broker_id)
            elif now.in_controlled_shutdown:
                self.leaving[broker_id] = None
            elif now.is_active and not (before is not None and before.is_active):
                self._returns(broker_id)
        for key, old in delta.configs.items():
            if (old or {}).get(UNCLEAN_ELECTION) != self.image.configs.get(key, {}).get(UNCLEAN_ELECTION):
                self.reconsider_leaderless()

    def reconsider_leaderless(self) -> None:
        """Any live replica may be allowed to lead now where nobody does. A sweep under way went by the rule of before."""
        self.replicas.end(LEADERLESS_SWEEP)
        self.reconsiders_leaderless = True

    def spare(self, broker: BrokerView) -> None:
        """A broker in service lives. If it was being taken out, it was heard from between two pieces: what has lost its leader
        may only have this one, and it will never come back into a service that it did not leave."""
        if broker.id in self.half_out and broker.is_active:
            self.half_out.discard(broker.id)
            self._returns(broker.id)

    def stay(self, broker_id: int) -> None:
        """Nobody takes its place. If it was going for that, what has lost its leader may only have this one."""
        if broker_id in self.going:
            self.going.discard(broker_id)
            if self.is_active(broker_id):
                self._returns(broker_id)

    def _returns(self, broker_id: int) -> None:
        if len(self.returning) < 2:
            self.returning.append((broker_id,))
        else:  # the first may be under way
            self.returning[1] += (broker_id,)

    def registered(self, broker_id: int, epoch: int) -> BrokerView:
        """The broker of that epoch. Raises KafkaError (STALE_BROKER_EPOCH) for any other."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has the epoch {broker.epoch}, not {epoch}"
            )
        return broker

    def topic_named(self, name: str) -> TopicView:
        """Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION)."""
        topic = self.image.topics_by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic

    def is_active(self, broker_id: int) -> bool:
        """Whether it may lead and be in sync."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def can_lead(self, partition: PartitionView, broker_id: int) -> bool:
        """Whether it may lead that partition, apart from being in sync: active and to stay so, and the replica's directory is there."""
        broker = self.image.brokers.get(broker_id)
        may = broker is not None and broker.is_active and self.is_staying(broker_id)
        return broker is not None and may and self.has_replica_online(partition, broker)

    def is_staying(self, broker_id: int) -> bool:
        """Whether it is not being taken out. Who is, is elected by nobody between two pieces, and joins no ISR: what elects and what takes
        out would undo each other for ever."""
        return broker_id not in self.going and broker_id not in self.half_out

    def has_replica_online(self, partition: PartitionView, broker: BrokerView) -> bool:
        """Whether the directory of the broker's replica is readable; of a replica that is only being added, unknown: yes."""
        if broker.id not in partition.replicas:
            return True
        directory = partition.directory_of(broker.id)
        return broker.has_directory(directory) and directory not in self.failing.get(broker.id, ())

    def directory_for_new_replica(self, broker_id: int) -> bytes:
        """The broker's only directory; a broker with several decides and tells."""
        broker = self.image.brokers.get(broker_id)
        if broker is not None and len(broker.directories) == 1:
            return broker.directories[0]
        return DIRECTORY_UNASSIGNED

    def topic_config(self, topic_name: str, name: str, default: str) -> str:
        """A topic's effective setting: the topic's, then this node's dynamic one, then that of all nodes, then this node's file,
        then the default. For settings that have the same name for topics and for nodes."""
        configs = self.image.configs
        places = (TOPIC_RESOURCE, topic_name), (BROKER_RESOURCE, str(self.settings.node_id)), (BROKER_RESOURCE, "")
        for values in map(configs.get, places):
            if values is not None and name in values:
                return values[name]
        return self.settings.topic_defaults.get(name, default)

    def allows_unclean_election(self, topic_id: bytes) -> bool:
        topic = self.image.topics_by_id[topic_id]
        return self.topic_config(topic.name, UNCLEAN_ELECTION, "false").lower() == "true"
