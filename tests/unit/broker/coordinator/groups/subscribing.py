"""Subscriptions of classic consumers, as bytes."""

from collections.abc import Iterable, Mapping

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition


def written_subscription(
    topics: Iterable[str],
    owned: Mapping[str, Iterable[int]] | None = None,
    *,
    version: int = 3,
    generation: int = -1,
    rack: str | None = None,
) -> bytes:
    told = [TopicPartition(topic, sorted(partitions)) for topic, partitions in (owned or {}).items()]
    subscription = ConsumerProtocolSubscription(list(topics), None, told, generation, rack)
    return version.to_bytes(2, "big") + b"".join(encoder(ConsumerProtocolSubscription, version)(subscription))
