"""The values a metadata image is made of. Brokers and partitions never change: a change puts a new value in their place."""

import msgspec

from ottla.runtime.identifiers import ZERO_ID

NO_LEADER = -1
"""Of a partition that nobody leads."""
RECOVERED, RECOVERING = 0, 1

# Reserved directory ids (kraft.md 2.1).
DIRECTORY_MIGRATING = ZERO_ID
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
DIRECTORY_LOST = bytes(15) + b"\x02"
DIRECTORY_NOT_MADE = bytes(15) + b"\x03"
"""Ours: of a replica that its broker had no room for when it was to be made. Nothing was ever in it."""
DIRECTORIES_NOWHERE = (DIRECTORY_LOST, DIRECTORY_NOT_MADE)
DIRECTORY_ALWAYS_ONLINE = (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

NEXT_PRODUCER_ID = "nextProducerId"

ConfigKey = tuple[int, str]
"""Resource type and name; the name "" of the type BROKER_RESOURCE stands for all brokers."""


class EndpointView(msgspec.Struct, frozen=True, gc=False):
    """Where a listener is reached. ``security_protocol`` is Kafka's number (0 PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class FeatureRangeView(msgspec.Struct, frozen=True, gc=False):
    """The levels of a feature that a node can read."""

    min_version: int
    max_version: int


class BrokerView(msgspec.Struct, frozen=True):
    """A registered broker. ``epoch`` is the offset of the record that registered this incarnation."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[EndpointView, ...]
    features: dict[str, FeatureRangeView]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]

    @property
    def host(self) -> str:
        """The host of the first listener for clients."""
        return self.endpoints[0].host if self.endpoints else ""

    @property
    def port(self) -> int:
        return self.endpoints[0].port if self.endpoints else -1

    def address_on(self, listener_name: str) -> tuple[str, int] | None:
        """Host and port of the listener of that name."""
        for endpoint in self.endpoints:
            if endpoint.name == listener_name:
                return endpoint.host, endpoint.port
        return None

    @property
    def is_active(self) -> bool:
        """May lead partitions and join in-sync replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def is_leaving(self) -> bool:
        """Shuts down, and is not through with that: who is, is fenced, and comes back some time as after a crash."""
        return self.in_controlled_shutdown and not self.fenced

    @property
    def standing(self) -> str:
        """How it stands, in words."""
        if self.fenced:
            return "fenced"
        return "shutting down" if self.is_leaving else "in service"

    def has_directory(self, directory: bytes) -> bool:
        """Whether a replica in that directory is readable, as far as the controller knows."""
        return directory in DIRECTORY_ALWAYS_ONLINE or directory in self.directories


class ControllerView(msgspec.Struct, frozen=True):
    """A controller node that told what it can read."""

    id: int
    incarnation_id: bytes
    endpoints: tuple[EndpointView, ...]
    features: dict[str, FeatureRangeView]
    rack: str | None = None


class PartitionView(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A partition's registration. ``leader`` -1: none. ``directories`` has one entry for each of ``replicas``.

    The order of the fields is the order in the store: only append to it.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = RECOVERED
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    """Eligible leaders (KIP-966): out of the ISR, with all that is committed."""
    last_known_elr: tuple[int, ...] = ()
    """Of a partition without leader, ISR and eligible leaders: who led it last."""

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas without those that a reassignment under way takes away."""
        return tuple(each for each in self.replicas if each not in self.removing) if self.removing else self.replicas

    def directory_of(self, broker_id: int) -> bytes:
        """The directory in which that broker keeps its replica. Partitions from before directories were known have it
        unassigned."""
        if not self.directories:
            return DIRECTORY_UNASSIGNED
        return self.directories[self.replicas.index(broker_id)]


class TopicView:
    """A topic and its partitions by index. Read it from the image each time: the image may replace it."""

    __slots__ = ("id", "name", "owner", "partitions")

    def __init__(self, name: str, topic_id: bytes, partitions: dict[int, PartitionView], owner: object = None) -> None:
        self.name = name
        self.id = topic_id
        self.partitions = partitions
        self.owner = owner  # the image that may change `partitions` in place; see MetadataImage.fork

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicView):
            return NotImplemented
        return (self.name, self.id, self.partitions) == (other.name, other.id, other.partitions)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"TopicView({self.name!r}, {len(self.partitions)} partitions)"
