"""Metadata (3): brokers, and the leader and replicas of every partition, as the asking listener sees them.

Unknown topics are created when both the client and ``auto.create.topics.enable`` allow it; the answer says at once
that the topic is unknown, and the client asks again (as Kafka does).

All topics of a large cluster are put together over turns of the loop. Each is told as it is when its turn comes, so an answer may
know of one topic what it does not know yet of another; clients ask for some topics at one time and for others at another anyway.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.cluster_view import (
    missing_topic_error,
    named_brokers,
    partition_state,
    reachable_brokers,
)
from ottla.broker.handlers.common import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, operations, route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
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
PIECE_WORK = 500
"""Of topics and their partitions a piece: describing and encoding one takes 2-5 us."""
_TOPIC_WORK = 3  # as much as so many partitions
_NAMES_AS_A_PARTITION = 10
"""A topic that is named again takes no more than to see that: a few bytes name one, as often as a client likes."""
_BEGINNINGS_MAX = 3


def routes(broker: BrokerContext) -> list[Route]:
    return [route("Metadata", MetadataRequest, MetadataHandler(broker).answer)]


class MetadataHandler:
    """Answers from the node's own image; nothing is asked of another node."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._creation = TopicCreation(broker)
        self._fragments = TopicFragments()
        self._long = LongAnswers()

    def answer(self, request: RequestContext, body: MetadataRequest) -> None:
        self._create_unknown(body)
        self._long.give(request, self._pieces(body, request.version, request.connection.listener_name))

    def encoded(self, body: MetadataRequest, version: int, listener_name: str) -> bytes:
        """The response's bytes, all at once."""
        pieces = self._pieces(body, version, listener_name)
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                return bytes(done.value[0])

    def _pieces(self, body: MetadataRequest, version: int, listener_name: str) -> Pieces:
        """Begins anew when the brokers change meanwhile, for everything told so far may be wrong; the third time it does not wait for that."""
        audience = Audience(version, listener_name, body.include_topic_authorized_operations)
        for beginning in range(_BEGINNINGS_MAX):
            known = self._brokers()
            reachable = reachable_brokers(self._broker.image, listener_name)
            lost = self._broker.replicas.lost_leaders()
            self._fragments.brokers_are(known)
            topics: list[bytes] = []
            for _ in _Topics(self._broker, reachable, lost, audience, self._fragments).encode(body.topics, topics):
                if beginning + 1 == _BEGINNINGS_MAX:
                    continue
                yield
                if known != self._brokers():
                    break
            else:
                break
        named = named_brokers(self._broker.image, listener_name, self._broker.replicas.fenced_lately())
        response = MetadataResponse(
            brokers=[_broker(broker, listener_name) for broker in named.values()],
            cluster_id=self._broker.cluster_id,
            controller_id=self._administrator(reachable),
            cluster_authorized_operations=operations(body.include_cluster_authorized_operations, CLUSTER_OPERATIONS),
        )
        return [encode_response(response, topics, version)]

    def _brokers(self) -> object:
        """The brokers as a value: a change of a broker, or of what is known of the leaders, makes it another one."""
        return list(self._broker.image.brokers.values()), self._broker.replicas.lost_leaders()

    def _administrator(self, reachable: "dict[int, BrokerView]") -> int:
        """Where clients send administrative requests. Any broker passes them on, so: this one."""
        node_id = self._broker.node_id
        return node_id if node_id in reachable else next(iter(reachable), -1)

    def _create_unknown(self, body: MetadataRequest) -> None:
        if not body.topics or not body.allow_auto_topic_creation:
            return
        known = self._broker.image.topics_by_name
        names = (topic.name for topic in body.topics if topic.name is not None and topic.topic_id == ZERO_ID)
        self._creation.create(name for name in names if name not in known)


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
        self._work = 0  # since the last yield

    def encode(self, asked: list[MetadataRequestTopic] | None, found: list[bytes]) -> Generator[None, None, None]:
        """Puts the topics into ``found``, and yields after each piece of the work."""
        everything = asked is None or (self._version == 0 and not asked)
        if everything:
            for topic in list(self._image.topics_by_name.values()):
                found.append(self._known(topic))
                if self._work > PIECE_WORK:
                    self._work = 0
                    yield
            return
        seen: dict[tuple[bytes, str | None], None] = {}
        for number, each in enumerate(asked or (), 1):
            seen[each.topic_id, each.name] = None
            if len(seen) > len(found):
                found.append(self._asked(each))
            self._work += not number % _NAMES_AS_A_PARTITION
            if self._work > PIECE_WORK:
                self._work = 0
                yield

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
        # Versions 10 and 11 have the field, but Kafka never answered ids there. Of an id and a name it takes the id.
        if self._version < _NULL_NAME_FROM:
            return self._missing(ErrorCode.INVALID_REQUEST, asked.name, asked.topic_id)
        topic = self._image.topics_by_id.get(asked.topic_id)
        if topic is None:
            return self._missing(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        return self._known(topic)

    def _missing(self, error: ErrorCode, name: str | None, topic_id: bytes) -> bytes:
        self._work += _TOPIC_WORK
        if name is None and self._version < _NULL_NAME_FROM:
            name = ""
        topic = MetadataResponseTopic(
            error, name, topic_id, name in INTERNAL_TOPICS, topic_authorized_operations=self._operations
        )
        return encode_topic(topic, self._version)

    def _known(self, topic: "TopicView") -> bytes:
        self._work += _TOPIC_WORK + len(topic.partitions)
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
