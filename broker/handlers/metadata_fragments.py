"""Metadata responses put together from encoded topics.

Describing and encoding a topic of ten partitions costs 17 us, so a client that asks for all topics of a cluster with
10,000 partitions would hold the broker for as many milliseconds. A topic's bytes change only with the topic or with
the brokers that can be reached; they are kept until then.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from ottla.broker.wire.primitives import encode_varint

if TYPE_CHECKING:
    from ottla.quorum.metadata.image import TopicView

_COMPACT_FROM = 9
_KEPT_BYTES_MAX = 16 << 20


class Audience(NamedTuple):
    """Who gets the same bytes for the same topic."""

    version: int
    listener_name: str
    with_operations: bool


class _Kept(NamedTuple):
    partition_count: int
    epoch_sum: int
    encoded: bytes


class TopicFragments:
    """Encoded topics by audience and topic id."""

    def __init__(self) -> None:
        self._kept: dict[Audience, dict[bytes, _Kept]] = {}
        self._bytes = 0
        self._brokers: object = None

    def brokers_are(self, brokers: object) -> None:
        """Tells which brokers there are, as a value: another one than last time makes everything stale."""
        if brokers != self._brokers:
            self._brokers = brokers
            self._clear()

    def encoded(
        self, audience: Audience, topic: "TopicView", describe: "Callable[[TopicView], MetadataResponseTopic]"
    ) -> bytes:
        """The topic's bytes in a response to that audience."""
        partitions = topic.partitions
        # Every change of a partition raises its epoch, so the sum and the count tell whether anything changed.
        epoch_sum = sum([partition.partition_epoch for partition in partitions.values()])
        of_audience = self._kept.setdefault(audience, {})
        kept = of_audience.get(topic.id)
        if kept is not None and kept.epoch_sum == epoch_sum and kept.partition_count == len(partitions):
            return kept.encoded
        encoded = encode_topic(describe(topic), audience.version)
        self._bytes += len(encoded) - (len(kept.encoded) if kept is not None else 0)
        of_audience[topic.id] = _Kept(len(partitions), epoch_sum, encoded)
        if self._bytes > _KEPT_BYTES_MAX:
            self._clear()
        return encoded

    def _clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """The bytes of one topic inside a response: those of a response with it, without what is around it."""
    alone = _join(MetadataResponse(topics=[topic]), version)
    before = len(_join(MetadataResponse(), version)) - _tail_bytes(version)
    return alone[before : len(alone) - _tail_bytes(version)]


def encode_response(response: MetadataResponse, topics: Iterable[bytes], version: int) -> bytes:
    """A response without topics, with the encoded ones put in."""
    empty = _join(response, version)
    split = len(empty) - _tail_bytes(version)
    parts = list(topics)
    compact = version >= _COMPACT_FROM
    count = encode_varint(len(parts) + 1) if compact else len(parts).to_bytes(4, "big")
    return b"".join((empty[: split - (1 if compact else 4)], count, *parts, empty[split:]))


def _join(response: MetadataResponse, version: int) -> bytes:
    return b"".join(encoder(MetadataResponse, version)(response))


def _tail_bytes(version: int) -> int:
    """What follows the topics: the cluster's permissions (8-10), the error (13), the tagged fields (9 and up)."""
    return (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if version >= _COMPACT_FROM else 0)
