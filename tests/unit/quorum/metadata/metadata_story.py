"""A cluster in a few batches of the metadata log, with their causes."""

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.listener import CommittedBatch
from tests.unit.quorum.metadata.metadata_records import (
    abort,
    begin,
    broker,
    change,
    end,
    partition,
    topic,
    topic_id,
)


def log(*batches: tuple[str, list[pb.MetadataRecord]]) -> list[CommittedBatch]:
    """Batches with their causes, a second apart."""
    result, offset = [], 0
    for number, (cause, records) in enumerate(batches):
        data = [each.SerializeToString() for each in records]
        result.append(CommittedBatch(offset, offset + len(records) - 1, 3, 1000 * number, data, cause))
        offset += len(records)
    return result


STORY = log(
    ("register_broker", [broker(1)]),
    ("create_topics by ann", [topic(1), partition(1, 0), partition(1, 1)]),
    ("the session of broker 1 is over", [change(1, 0, leader=2, isr=pb.Replicas(ids=[2, 3])), change(1, 1, leader=2)]),
    ("alter_partition by broker 2", [change(1, 0, isr=pb.Replicas(ids=[2, 3, 1]))]),
    ("leaders return", [change(1, 0, leader=1)]),
    ("large topic", [begin(), topic(2), partition(2, 0)]),
    ("large topic", [partition(2, 1), end()]),
    ("half a topic", [begin(), topic(3)]),
    ("activation", [abort()]),
    ("delete_topics by bob", [pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=topic_id(1)))]),
)
