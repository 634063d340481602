"""The topics that the members of a classic group read, as they tell it their leader."""

from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.embedded_protocol import CONSUMER, read_subscription
from ottla.broker.wire.errors import WireError


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
            topics.update(read_subscription(member.metadata(group.protocol)).topics)
    except (WireError, ValueError):
        return None
    return frozenset(topics)


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """Of one member; None where it cannot be read."""
    try:
        return read_subscription(metadata).topics
    except (WireError, ValueError):
        return None
