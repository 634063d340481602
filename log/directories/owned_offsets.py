"""The ``*-offset-checkpoint`` files of a log directory, whose offsets belong to topics and not to names.

A name may be used again by another topic, and what stood for the old one must not stand for the new one. Kafka's format
(version 0: topic, partition, offset) has no place for a topic's id, and its tools and our older nodes shall still read the file.
So each topic's rows come behind a row of a name that no topic can have, which everybody else passes over:

    flights@gYz0-cLpS0yR2cUEdmpRWw 2 0        the next 2 rows are of the topic with this id
    flights 0 120
    flights 1 95

Rows without such a mark are of an older node, or Kafka's. Whose they are nobody can tell after a hard stop: they are passed over. A
clean stop wrote them about exactly the logs that lie there: the start that follows `claim`s them.
"""

from collections.abc import Callable, Mapping

from ottla.log.directories.checkpoints import CheckpointError, offset_rows, table
from ottla.log.names import NO_TOPIC_ID, TopicIdPartition, TopicPartition
from ottla.runtime.disk import Disk
from ottla.runtime.identifiers import id_from_text, id_to_text

OWNER = "@"

OwnedOffsets = dict[TopicIdPartition, int]


def owned_table(offsets: Mapping[TopicIdPartition, int]) -> bytes:
    """The contents of a file."""
    topics: dict[tuple[bytes, str], list[str]] = {}
    for ((topic, number), topic_id), offset in offsets.items():
        topics.setdefault((topic_id, topic), []).append(f"{topic} {number} {offset}")
    rows: list[str] = []
    for (topic_id, topic), own in topics.items():
        if topic_id != NO_TOPIC_ID:
            rows.append(f"{topic}{OWNER}{id_to_text(topic_id)} {len(own)} 0")
        rows += own
    return table(rows, len(rows))


def read_owned(disk: Disk, path: str) -> OwnedOffsets:
    """Raises CheckpointError when the file is not whole."""
    offsets: OwnedOffsets = {}
    topic, topic_id, left = "", NO_TOPIC_ID, 0
    for number, (partition, offset) in offset_rows(disk, path):
        if OWNER in partition.topic:
            if left:
                raise CheckpointError(f"{path}: line {number}: {left} more rows of {topic} were to come")
            (topic, topic_id), left = _owner(path, number, partition.topic), partition.partition
            continue
        if left and partition.topic != topic:
            raise CheckpointError(
                f"{path}: line {number}: of {partition.topic} where {left} more of {topic} were to come"
            )
        offsets[TopicIdPartition(partition, topic_id if left else NO_TOPIC_ID)] = offset
        left -= left > 0
    if left:
        raise CheckpointError(f"{path}: {left} rows of {topic} are missing")
    return offsets


def claim(disk: Disk, path: str, find_topic_ids: Callable[[], Mapping[TopicPartition, bytes]]) -> None:
    """Gives rows without an owner to the logs that lie there, of which ``find_topic_ids`` knows whose they are.

    Only after a clean stop. OSError passes through.
    """
    try:
        offsets = read_owned(disk, path)
    except CheckpointError:
        return  # whoever reads it says so
    if all(key.topic_id != NO_TOPIC_ID for key in offsets):
        return
    topic_ids = find_topic_ids()
    claimed: OwnedOffsets = {}
    for (partition, topic_id), offset in offsets.items():
        owner = topic_id or topic_ids.get(partition, NO_TOPIC_ID)
        if owner != NO_TOPIC_ID:
            claimed[TopicIdPartition(partition, owner)] = offset
    disk.write_atomically(path, owned_table(claimed))


def _owner(path: str, number: int, text: str) -> tuple[str, bytes]:
    topic, _, topic_id = text.partition(OWNER)
    try:
        return topic, id_from_text(topic_id)
    except ValueError as error:
        raise CheckpointError(f"{path}: line {number}: {error}") from error
