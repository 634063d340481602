"""What a new controller counts at once equals what one that was there has followed."""

from collections.abc import Iterator
from random import Random

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.replica_index import ReplicaIndex
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage

BROKERS = range(5)


def changes(rng: Random) -> Iterator[pb.MetadataRecord]:
    """Topics that come, partitions that are led by others and move, topics that go."""
    for number in range(20):
        topic_id = bytes([number]) * 16
        yield pb.MetadataRecord(topic=pb.Topic(name=f"topic-{number}", topic_id=topic_id))
        for index in range(4):
            replicas = rng.sample(BROKERS, 3)
            yield pb.MetadataRecord(
                partition=pb.Partition(
                    topic_id=topic_id, partition_id=index, replicas=replicas, isr=replicas, leader=replicas[0]
                )
            )
        for _ in range(6):
            moved = pb.Replicas(ids=rng.sample(BROKERS, 2)) if rng.random() < 0.5 else None
            change = pb.PartitionChange(
                topic_id=topic_id, partition_id=rng.randrange(4), leader=rng.choice(BROKERS), replicas=moved
            )
            yield pb.MetadataRecord(partition_change=change)
        if number % 3 == 0:
            yield pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=topic_id))


def test_counted_at_once_or_followed_from_the_beginning_it_is_the_same() -> None:
    image, rng = MetadataImage(), Random(3)
    followed = ReplicaIndex(image)
    assert followed.unpreferred() == []
    for record in changes(rng):
        delta = MetadataDelta()
        image.apply(record, delta)
        followed.update(delta)
    late = ReplicaIndex(image)
    assert sorted(late.unpreferred()) == sorted(followed.unpreferred()) != []
    for broker in BROKERS:
        held = dict(late.partitions_of(broker))
        assert held == dict(followed.partitions_of(broker))
        assert sorted(held) == sorted(
            (topic.id, index)
            for topic in image.topics_by_id.values()
            for index, partition in topic.partitions.items()
            if broker in partition.replicas
        )
