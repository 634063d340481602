"""Counts that follow the deltas, beside a plain count of everything."""

from random import Random

import pytest

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller import partition_counts
from ottla.quorum.controller.partition_counts import PartitionCounts
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata import delta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.views import NO_LEADER
from ottla.testing.quorum.memory import MemoryStore


class Cluster:
    """A loader that is told random changes."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.loader = MetadataLoader(MemoryStore())
        self.topics: list[bytes] = []
        self.made = 0

    def commit(self, *records: pb.MetadataRecord) -> None:
        offset = self.loader.next_offset
        encoded = [record.SerializeToString() for record in records]
        self.loader.on_commit(CommittedBatch(offset, offset + len(records) - 1, 1, 0, encoded))

    def create(self) -> None:
        self.made += 1
        topic_id = self.made.to_bytes(16, "big")
        records = [pb.MetadataRecord(topic=pb.Topic(name=f"t{self.made}", topic_id=topic_id))]
        for index in range(self.rng.randrange(1, 5)):
            leader = self.rng.choice((NO_LEADER, 1, 2))
            partition = pb.Partition(
                topic_id=topic_id, partition_id=index, replicas=[1, 2], isr=[1, 2], leader=leader, leader_epoch=1
            )
            records.append(pb.MetadataRecord(partition=partition))
        self.topics.append(topic_id)
        self.commit(*records)

    def change(self) -> None:
        topic = self.loader.image.topics_by_id[self.rng.choice(self.topics)]
        index = self.rng.choice(list(topic.partitions))
        leader = self.rng.choice((NO_LEADER, 1, 2))
        change = pb.PartitionChange(topic_id=topic.id, partition_id=index, leader=leader)
        self.commit(pb.MetadataRecord(partition_change=change))

    def delete(self) -> None:
        topic_id = self.topics.pop(self.rng.randrange(len(self.topics)))
        self.commit(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=topic_id)))

    def step(self) -> None:
        self.rng.choice([self.create, self.change, self.change, self.delete] if self.topics else [self.create])()


def plain(image: MetadataImage) -> tuple[int, int, int]:
    partitions = [each for topic in image.topics_by_id.values() for each in topic.partitions.values()]
    offline = sum(each.leader == NO_LEADER for each in partitions)
    return len(partitions), offline, sum(each.leader != each.replicas[0] for each in partitions)


@pytest.mark.parametrize("seed", range(20))
def test_the_counts_are_those_of_the_image_whatever_changed_while_they_were_made(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_counts, "PARTITIONS_A_SLICE", 1)
    cluster = Cluster(seed)
    for _ in range(30):
        cluster.step()
    counts = PartitionCounts(cluster.loader)
    for _ in counts.built():
        cluster.step()
    for _ in range(30):
        cluster.step()
        assert (counts.partitions, counts.offline, counts.unpreferred) == plain(cluster.loader.image)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("told_before", [0, 1, 3])
def test_a_snapshot_that_is_told_while_they_are_made_counts_once(
    seed: int, told_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_counts, "PARTITIONS_A_SLICE", 1)
    monkeypatch.setattr(delta, "PIECE_PARTITIONS", 2)
    cluster, ahead = Cluster(seed), Cluster(seed)
    for _ in range(20):
        cluster.step()
    for _ in range(40):
        ahead.step()
    counts = PartitionCounts(cluster.loader)
    counting, telling = counts.built(), cluster.loader._take_over(ahead.loader.image)
    for _ in range(told_before):
        next(counting, None)
    for _ in telling:
        next(counting, None)
    for _ in counting:
        pass
    assert (counts.partitions, counts.offline, counts.unpreferred) == plain(cluster.loader.image)


def test_nothing_is_counted_before_somebody_asks() -> None:
    cluster = Cluster(1)
    counts = PartitionCounts(cluster.loader)
    cluster.create()
    assert counts.partitions == 0
    assert list(counts.built()) == []
    assert counts.partitions == plain(cluster.loader.image)[0] > 0
