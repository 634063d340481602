"""What a new controller counts at once equals what one that was there has followed."""

from collections.abc import Callable, Iterator
from random import Random

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.replica_index import ReplicaIndex
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import PartitionView

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
                topic_id=topic_id, partition_id=rng.randrange(4), leader=rng.choice([-1, *BROKERS]), replicas=moved
            )
            yield pb.MetadataRecord(partition_change=change)
        if number % 3 == 0:
            yield pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=topic_id))


def topics_with(image: MetadataImage, is_meant: Callable[[PartitionView], bool]) -> list[bytes]:
    """Found by looking."""
    topics = image.topics_by_id.values()
    return sorted(topic.id for topic in topics if any(map(is_meant, topic.partitions.values())))


def leads(broker: int) -> Callable[[PartitionView], bool]:
    return lambda partition: partition.leader == broker


def hosts(broker: int) -> Callable[[PartitionView], bool]:
    return lambda partition: broker in partition.replicas


def test_counted_at_once_or_followed_from_the_beginning_it_is_the_same() -> None:
    image, rng = MetadataImage(), Random(3)
    followed = ReplicaIndex(image)
    assert list(followed.unpreferred()) == []
    for record in changes(rng):
        delta = MetadataDelta()
        image.apply(record, delta)
        followed.update(delta)
    late = ReplicaIndex(image)
    assert sorted(late.unpreferred()) == sorted(followed.unpreferred()) != []
    assert (
        sorted(late.leaderless_topics()) == sorted(followed.leaderless_topics()) == topics_with(image, leads(-1)) != []
    )
    for broker in BROKERS:
        assert sorted(late.topics_of(broker)) == sorted(followed.topics_of(broker)) == topics_with(image, hosts(broker))
        assert late.leads_any(broker) == followed.leads_any(broker) == bool(topics_with(image, leads(broker)))
