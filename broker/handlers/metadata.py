"""Metadata (3): brokers, and the leader and replicas of every partition, as the asking listener sees them.

Unknown topics are created when both the client and ``auto.create.topics.enable`` allow it; the answer says at once
that the topic is unknown, and the client asks again (as Kafka does).
"""

from typing import TYPE_CHECKING

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.cluster_view import (
    missing_topic_error,
    named_brokers,
    partition_state,
    reachable_brokers,
)
from ottla.broker.handlers.common import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, operations, route
from ottla.broker.handlers.metadata_fragments import Audience, TopicFragments, encode_response, encode_topic
from ottla.broker.handlers.topic_creation import TopicCreation
from ottla.broker.internal_topics import INTERNAL_TOPICS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

if TYPE_CHECKING:
    from ottla.quorum.metadata.image import BrokerView, TopicView

_NULL_NAME_FROM = 12  # first version that may ask by topic id, and answer without a name


def routes(broker: BrokerContext) -> list[Route]:
    return [route("Metadata", MetadataRequest, MetadataHandler(broker).answer)]


class MetadataHandler:
    """Answers from the node's own image; nothing is asked of another node."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._creation = TopicCreation(broker)
        self._fragments = TopicFragments()

    def answer(self, request: RequestContext, body: MetadataRequest) -> None:
        self._create_unknown(body)
        request.respond([self.encoded(body, request.version, request.connection.listener_name)])

    def encoded(self, body: MetadataRequest, version: int, listener_name: str) -> bytes:
        """The response's bytes."""
        known = self._broker.image.brokers
        reachable = reachable_brokers(self._broker.image, listener_name)
        named = named_brokers(self._broker.image, listener_name, self._broker.replicas.fenced_lately())
        lost = self._broker.replicas.lost_leaders()
        self._fragments.brokers_are(
            (list(known.values()), lost)
        )  # views are values: a change puts another in their place
        audience = Audience(version, listener_name, body.include_topic_authorized_operations)
        topics = _Topics(self._broker, reachable, lost, audience, self._fragments).encoded(body.topics)
        response = MetadataResponse(
            brokers=[_broker(broker, listener_name) for broker in named.values()],
            cluster_id=self._broker.cluster_id,
            controller_id=self._administrator(reachable),
            cluster_authorized_operations=operations(body.include_cluster_authorized_operations, CLUSTER_OPERATIONS),
        )
        return encode_response(response, topics, version)

    def _administrator(self, reachable: "dict[int, BrokerView]") -> int:
        """Where clients send administrative requests. Any broker passes them on, so: this one."""
        node_id = self._broker.node_id
        return node_id if node_id in reachable else next(iter(reachable), -1)

    def _create_unknown(self, body: MetadataRequest) -> None:
        if not body.topics or not body.allow_auto_topic_creation:
            return
        known = self._broker.image.topics_by_name
        names = [topic.name for topic in body.topics if topic.name is not None and topic.topic_id == ZERO_ID]
        self._creation.create([name for name in names if name not in known])


class _Topics:
    """Topics as one request asks for them."""

    def __init__(
        self,
        broker: BrokerContext,
        reachable: "dict[int, BrokerView]",
        lost: frozenset[int],
        audience: Audience,
        fragments: TopicFragments,
    ) -> None:
        self._image = broker.image
        self._reachable = reachable
        self._lost = lost
        self._audience = audience
        self._version = audience.version
        self._fragments = fragments
        self._operations = operations(audience.with_operations, TOPIC_OPERATIONS)

    def encoded(self, asked: list[MetadataRequestTopic] | None) -> list[bytes]:
        everything = asked is None or (self._version == 0 and not asked)
        if everything:
            return [self._known(topic) for topic in self._image.topics_by_name.values()]
        answered: dict[tuple[bytes, str | None], bytes] = {}
        for each in asked or ():
            key = (each.topic_id, each.name)
            if key not in answered:
                answered[key] = self._asked(each)
        return list(answered.values())

    def _asked(self, asked: MetadataRequestTopic) -> bytes:
        if asked.topic_id != ZERO_ID:
            return self._asked_by_id(asked)
        if asked.name is None:
            return self._missing(ErrorCode.INVALID_REQUEST, None, ZERO_ID)
        topic = self._image.topics_by_name.get(asked.name)
        if topic is None:
            return self._missing(missing_topic_error(asked.name), asked.name, ZERO_ID)
        return self._known(topic)

    def _asked_by_id(self, asked: MetadataRequestTopic) -> bytes:
        # Versions 10 and 11 have the field, but Kafka never answered ids there; a name beside an id is a mistake too.
        if self._version < _NULL_NAME_FROM or asked.name is not None:
            return self._missing(ErrorCode.INVALID_REQUEST, asked.name, asked.topic_id)
        topic = self._image.topics_by_id.get(asked.topic_id)
        if topic is None:
            return self._missing(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        return self._known(topic)

    def _missing(self, error: ErrorCode, name: str | None, topic_id: bytes) -> bytes:
        if name is None and self._version < _NULL_NAME_FROM:
            name = ""
        topic = MetadataResponseTopic(
            error, name, topic_id, name in INTERNAL_TOPICS, topic_authorized_operations=self._operations
        )
        return encode_topic(topic, self._version)

    def _known(self, topic: "TopicView") -> bytes:
        return self._fragments.encoded(self._audience, topic, self._describe)

    def _describe(self, topic: "TopicView") -> MetadataResponseTopic:
        known, reachable, version = self._image.brokers, self._reachable, self._version
        partitions = []
        for index, partition in topic.partitions.items():
            state = partition_state(
                partition,
                reachable,
                known,
                lost=self._lost,
                hide_unreachable=version == 0,
                name_missing_listener=version >= 6,
            )
            error, leader, replicas, isr, offline = state
            partitions.append(
                MetadataResponsePartition(error, index, leader, partition.leader_epoch, replicas, isr, offline)
            )
        internal = topic.name in INTERNAL_TOPICS
        return MetadataResponseTopic(ErrorCode.NONE, topic.name, topic.id, internal, partitions, self._operations)


def _broker(broker: "BrokerView", listener_name: str) -> MetadataResponseBroker:
    address = broker.address_on(listener_name)
    if address is None:
        raise LookupError(f"broker {broker.id} is not on listener {listener_name}")  # named_brokers saw to it
    return MetadataResponseBroker(broker.id, *address, broker.rack)
