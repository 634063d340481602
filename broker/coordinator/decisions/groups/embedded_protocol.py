"""What members of the protocol type "consumer" and their leader tell each other through a classic group, in bytes that its coordinator
only hands on (ConsumerProtocolSubscription, ConsumerProtocolAssignment)."""

from collections.abc import Iterable, Mapping
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.broker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.broker.wire.schema import message

CONSUMER = "consumer"
_NUMBER = Struct(">h")

Partitions = Mapping[str, frozenset[int]]
"""By topic."""


class Subscription(NamedTuple):
    """What a member tells when it joins."""

    version: int
    topics: frozenset[str]
    owned: Partitions
    """What it goes on to read; empty for members that gave up everything before they joined, and for those that do not say it."""
    generation: int
    """In which it got them; -1 for those that do not say it."""
    rack_id: str | None


class GivenAssignment(NamedTuple):
    """What a member is told that it reads."""

    partitions: Partitions
    has_user_data: bool
    """More is told than partitions: only the assignor that wrote it knows what."""


def read_subscription(metadata: bytes) -> Subscription:
    """Raises WireError."""
    version, told = _read(ConsumerProtocolSubscription, metadata)
    owned = _by_topic(told.owned_partitions)
    return Subscription(version, frozenset(told.topics), owned, told.generation_id, told.rack_id)


def read_assignment(data: bytes) -> GivenAssignment:
    """Raises WireError. Nothing says: no partitions."""
    if not data:
        return GivenAssignment({}, False)
    _, told = _read(ConsumerProtocolAssignment, data)
    return GivenAssignment(_by_topic(told.assigned_partitions), bool(told.user_data))


def written_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """In the version in which the member tells its subscription."""
    told = [TopicPartition(topic, sorted(partitions[topic])) for topic in sorted(partitions)]
    version = _within(ConsumerProtocolAssignment, version)
    return _NUMBER.pack(version) + b"".join(
        encoder(ConsumerProtocolAssignment, version)(ConsumerProtocolAssignment(told))
    )


def _by_topic(named: Iterable[Any]) -> Partitions:
    """A client may name a topic for each of its partitions."""
    found: dict[str, set[int]] = {}
    for each in named:
        if each.partitions:
            found.setdefault(each.topic, set()).update(each.partitions)
    return {topic: frozenset(partitions) for topic, partitions in found.items()}


def _read(kind: type[msgspec.Struct], data: bytes) -> tuple[int, Any]:
    """In a version that is not known yet something may follow what is."""
    if len(data) < _NUMBER.size:
        raise WireError("no version")
    (number,) = _NUMBER.unpack_from(data)
    version = _within(kind, number)
    told, _ = decoder(kind, version)(memoryview(data), _NUMBER.size)
    return version, told


@cache
def _versions(kind: type[msgspec.Struct]) -> tuple[int, int]:
    known = message(kind.__name__).versions
    return known.first, known.last


def _within(kind: type[msgspec.Struct], version: int) -> int:
    first, last = _versions(kind)
    return min(max(version, first), last)
