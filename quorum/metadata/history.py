"""The metadata log as history: what the cluster looked like at an offset, what changed between two, and why.

Pure: it is given the log's batches, from wherever they were read. A batch carries its cause, which is what `blame` tells.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.causes import in_words
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.family import RecordFamily, Telling
from ottla.quorum.metadata.families.table import FAMILIES
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import decode
from ottla.quorum.metadata.transactions import Transactions
from ottla.quorum.metadata.views import PartitionView, TopicView


class Moment(NamedTuple):
    """A record with what its batch says of it. Time in ms since 1970."""

    offset: int
    epoch: int
    time_ms: int
    cause: str
    record: pb.MetadataRecord


def effective_records(batches: Iterable[CommittedBatch]) -> Iterator[Moment]:
    """The records in the order in which they take effect; those of a transaction at its end, with offsets of their own.
    Raises UnreadableRecordError."""
    transactions: Transactions[Moment] = Transactions()
    for batch in batches:
        cause = in_words(batch.cause)
        for index, data in enumerate(batch.records):
            record = decode(data)
            moment = Moment(batch.base_offset + index, batch.epoch, batch.append_time_ms, cause, record)
            yield from transactions.take(record, moment)


def at(batches: Iterable[CommittedBatch], offset: int, start: MetadataImage | None = None) -> MetadataImage:
    """The image after the last batch that ends at ``offset`` or before. ``start``: a snapshot's image, when the log does
    not reach back to its beginning; it is left as it is."""
    image = start.fork() if start is not None else MetadataImage()
    known = image.offset
    delta = MetadataDelta()
    wanted = (batch for batch in batches if known < batch.base_offset and batch.last_offset <= offset)
    for moment in effective_records(wanted):
        image.apply(moment.record, delta)
        image.offset, image.epoch = moment.offset, moment.epoch
    return image


# --- blame ------------------------------------------------------------------------------------------------------------


class BlameRow(NamedTuple):
    """One thing that happened to a partition. ``partition``: as it was afterwards; None: it was deleted."""

    offset: int
    epoch: int
    time_ms: int
    cause: str
    topic_id: bytes
    what: str
    partition: PartitionView | None


def blame(
    batches: Iterable[CommittedBatch], topic: str, partition: int, start: MetadataImage | None = None
) -> list[BlameRow]:
    """The life of a partition, and of others that had its name before it. ``start`` as in `at`."""
    image = start.fork() if start is not None else MetadataImage()
    known = image.offset
    rows: list[BlameRow] = []
    for moment in effective_records(batch for batch in batches if known < batch.base_offset):
        delta = MetadataDelta()
        image.apply(moment.record, delta)
        for (topic_id, index), before in delta.partitions.items():
            if index == partition and _name(image, delta, topic_id) == topic:
                after = image.partition(topic_id, index)
                rows.append(BlameRow(*moment[:4], topic_id, _what(before, after), after))
    return rows


def _name(image: MetadataImage, delta: MetadataDelta, topic_id: bytes) -> str:
    topic = image.topics_by_id.get(topic_id) or delta.deleted_topics[topic_id]
    return topic.name


def _what(before: PartitionView | None, after: PartitionView | None) -> str:
    if after is None:
        return "deleted"
    if before is None:
        return f"created on {_ids(after.replicas)}, led by {after.leader}"
    return ", ".join(_changes(before, after)) or "leader epoch raised"


def _changes(before: PartitionView, after: PartitionView) -> Iterator[str]:
    if before.leader != after.leader:
        yield f"leader {_leader(before.leader)} -> {_leader(after.leader)}"
    lost = [each for each in before.isr if each not in after.isr]
    gained = [each for each in after.isr if each not in before.isr]
    if lost:
        yield f"out of sync: {_ids(lost)}"
    if gained:
        yield f"in sync again: {_ids(gained)}"
    if before.replicas != after.replicas:
        yield f"replicas {_ids(before.replicas)} -> {_ids(after.replicas)}"
    if (before.adding or before.removing) and not (after.adding or after.removing):
        yield "reassignment over"
    if before.elr != after.elr:
        yield f"eligible to lead: {_ids(after.elr) or 'nobody else'}"
    if before.leader_recovery_state != after.leader_recovery_state:
        yield "unclean election: records may be lost" if after.leader_recovery_state else "recovered"


def _leader(broker_id: int) -> str:
    return "none" if broker_id < 0 else str(broker_id)


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


# --- diff -------------------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """One thing that differs between two images; an empty text: it is not there."""

    kind: str
    name: str
    before: str
    after: str


def diff(before: MetadataImage, after: MetadataImage) -> list[Difference]:
    """What differs: features and brokers, topics, all else."""
    delta = MetadataDelta.between(before, after)
    told = [(each, each.telling) for each in FAMILIES.values() if each.telling is not None]
    return [
        *(row for each, how in told if how.before_topics for row in _entry_differences(each, how, delta, after)),
        *_topic_differences(delta, after),
        *(row for each, how in told if not how.before_topics for row in _entry_differences(each, how, delta, after)),
    ]


def _entry_differences(
    family: RecordFamily[Any, Any], telling: Telling, delta: MetadataDelta, after: MetadataImage
) -> Iterator[Difference]:
    entries = after.entries(family)
    for key, before in delta.changed(family).items():
        now = entries.get(key)
        old = {} if before is None else dict(telling.lines(key, before))
        new = {} if now is None else dict(telling.lines(key, now))
        if old == new:  # it differs in what is not told
            yield from (Difference(telling.noun, name, text, "amended") for name, text in old.items())
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                yield Difference(telling.noun, name, old.get(name, ""), new.get(name, ""))


def _topic_differences(delta: MetadataDelta, after: MetadataImage) -> Iterator[Difference]:
    for topic in delta.deleted_topics.values():
        yield Difference("topic", topic.name, _size(topic), "")
    for topic_id, name in delta.created_topics.items():
        yield Difference("topic", name, "", _size(after.topics_by_id[topic_id]))
    for (topic_id, index), old in delta.partitions.items():
        if topic_id in delta.deleted_topics or topic_id in delta.created_topics:
            continue
        name = f"{after.topics_by_id[topic_id].name}-{index}"
        text, new = _partition(old), _partition(after.partition(topic_id, index))
        yield Difference("partition", name, text, "amended" if text == new else new)  # as of entries


def _size(topic: TopicView) -> str:
    return f"{len(topic.partitions)} partitions"


def _partition(partition: PartitionView | None) -> str:
    if partition is None:
        return ""
    text = f"leader {_leader(partition.leader)} (epoch {partition.leader_epoch}), in sync {_ids(partition.isr)}"
    return text if partition.isr == partition.replicas else f"{text} of {_ids(partition.replicas)}"
