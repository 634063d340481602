"""What members of the protocol type "consumer" tell their leader: the topics that they read (ConsumerProtocolSubscription)."""

from struct import Struct

from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.wire.codec import decoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.broker.wire.schema import message

CONSUMER = "consumer"
_NUMBER = Struct(">h")


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Of all members; None where it cannot be known, because it is another kind of group or one does not say it in a way that
    can be read."""
    if group.protocol_type != CONSUMER:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    topics: set[str] = set()
    try:
        for member in group.members.values():
            topics.update(_topics(member.metadata(group.protocol)))
    except (WireError, ValueError):
        return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[str]:
    if len(metadata) < _NUMBER.size:
        raise ValueError("no version")
    (version,) = _NUMBER.unpack_from(metadata)
    known = message("ConsumerProtocolSubscription").versions
    read = decoder(ConsumerProtocolSubscription, min(max(version, known.first), known.last))
    subscription, _ = read(memoryview(metadata), _NUMBER.size)
    return subscription.topics
