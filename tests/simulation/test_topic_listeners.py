"""Who hears which partitions of a topic a broker leads: each election, resignation and deletion once, in their order."""

import pytest

from ottla.broker.replication.listeners import TopicListener
from ottla.broker.replication.partition import Partition
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta, differences
from ottla.quorum.metadata.image import MetadataImage
from ottla.testing.replication.broker import TOPIC, TOPIC_ID, Broker
from ottla.testing.replication.cluster import Cluster, run

ANOTHER_ID = b"G" * 16


class Heard(TopicListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def elected(self, partition: Partition, leader_epoch: int) -> None:
        assert partition.leader is not None
        assert partition.leader.epoch == leader_epoch
        self.told.append(("elected", partition.index, leader_epoch))

    def resigned(self, partition: Partition, leader_epoch: int) -> None:
        self.told.append(("resigned", partition.index, leader_epoch))

    def deleted(self, partition: Partition) -> None:
        assert not partition.usable
        self.told.append(("deleted", partition.index, partition.topic_id[0]))

    def since(self) -> list[tuple[str, int, int]]:
        """What it was told since it was asked."""
        told, self.told = self.told, []
        return told


def listener(broker: Broker, topic: str = TOPIC) -> Heard:
    assert broker.manager is not None
    heard = Heard()
    broker.manager.listen(topic, heard)
    return heard


def led_here(topic_id: bytes, index: int, epoch: int) -> pb.MetadataRecord:
    partition = pb.Partition(
        topic_id=topic_id, partition_id=index, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leader_epoch=epoch
    )
    return pb.MetadataRecord(partition=partition)


def test_elections_and_resignations_come_by_turns_as_the_leadership_moves() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        first, second = listener(cluster.brokers[1]), listener(cluster.brokers[2])
        assert first.since() == [("elected", 0, 1), ("elected", 1, 1)]
        cluster.elect(2, (1, 2, 3))
        assert (first.since(), second.since()) == ([("resigned", 0, 1)], [("elected", 0, 2)])
        cluster.elect(1, (1, 2, 3))
        assert (first.since(), second.since()) == ([("elected", 0, 3)], [("resigned", 0, 2)])

    run(scenario)


def test_news_of_a_leader_that_stays_is_no_election() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        heard = listener(cluster.brokers[1])
        heard.since()
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, isr=pb.Replicas(ids=[1, 2]))
        cluster.tell(pb.MetadataRecord(partition_change=change))
        cluster.set_topic(retention_ms="1000")
        assert heard.since() == []

    run(scenario)


def test_a_new_epoch_of_a_leader_that_stays_is_a_resignation_and_an_election() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        heard = listener(cluster.brokers[1])
        cluster.elect(1, (1, 2, 3))
        assert heard.since() == [("elected", 0, 1), ("resigned", 0, 1), ("elected", 0, 2)]

    run(scenario)


def test_a_topic_that_takes_the_name_of_one_that_was_deleted_comes_after_its_deletion() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        heard = listener(cluster.brokers[1])
        heard.since()
        cluster.tell(
            pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)),
            pb.MetadataRecord(topic=pb.Topic(name=TOPIC, topic_id=ANOTHER_ID)),
            led_here(ANOTHER_ID, 0, 0),
        )
        assert heard.since() == [("resigned", 0, 1), ("deleted", 0, TOPIC_ID[0]), ("elected", 0, 0)]

    run(scenario)


def test_an_image_that_jumps_tells_the_same() -> None:
    """A broker that was away is given a snapshot: only what differs is seen."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        broker = cluster.brokers[1]
        heard = listener(broker)
        heard.since()
        before, after = broker.image.fork(), MetadataImage()
        for record in cluster.records:
            if not record.HasField("partition") and not record.HasField("topic"):
                after.apply(record, MetadataDelta())
        for record in (
            pb.MetadataRecord(topic=pb.Topic(name=TOPIC, topic_id=ANOTHER_ID)),
            led_here(ANOTHER_ID, 0, 7),
        ):
            after.apply(record, MetadataDelta())
        assert broker.manager is not None
        assert broker.node.process is not None
        for delta in differences(before, after):
            broker.node.process.run(broker.manager.publish, delta, after)
        gone = [("resigned", 0, 1), ("deleted", 0, TOPIC_ID[0]), ("resigned", 1, 1), ("deleted", 1, TOPIC_ID[0])]
        assert heard.since() == [*gone, ("elected", 0, 7)]

    run(scenario)


def test_a_replica_that_goes_to_other_brokers_resigns_and_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        heard = listener(cluster.brokers[1])
        heard.since()
        change = pb.PartitionChange(
            topic_id=TOPIC_ID, partition_id=0, leader=2, replicas=pb.Replicas(ids=[2, 3]), isr=pb.Replicas(ids=[2, 3])
        )
        cluster.tell(pb.MetadataRecord(partition_change=change))
        assert heard.since() == [("resigned", 0, 1), ("deleted", 0, TOPIC_ID[0])]

    run(scenario)


def test_a_directory_that_fails_resigns_and_a_stop_resigns_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        broker = cluster.brokers[1]
        heard = listener(broker)
        heard.since()
        assert broker.manager is not None
        assert broker.node.process is not None
        broker.node.process.run(broker.manager.directory_failed, [broker.log(1).partition])
        assert heard.since() == [("resigned", 1, 1)]
        broker.node.process.run(broker.manager.stop)
        assert heard.since() == [("resigned", 0, 1)]
        cluster.elect(1, (1, 2, 3))
        assert heard.since() == []

    run(scenario)


def test_a_listener_that_comes_before_the_topic_hears_of_it_after_a_restart_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster_before = Heard()
        await cluster.start(1, isr=(1,))
        broker = cluster.brokers[1]
        assert broker.manager is not None
        broker.manager.listen("arrivals", cluster_before)
        await broker.restart()
        heard = listener(broker)
        assert heard.since() == [("elected", 0, 1)]
        assert cluster_before.since() == []

    run(scenario)


def test_a_listener_that_fails_keeps_nobody_else_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Heard):
        def elected(self, partition: Partition, leader_epoch: int) -> None:
            raise RuntimeError("a mistake")

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        manager = cluster.brokers[2].manager
        assert manager is not None
        manager.listen(TOPIC, Failing())
        heard = listener(cluster.brokers[2])
        cluster.elect(2, (1, 2, 3))
        assert heard.since() == [("elected", 0, 2)]
        assert "our mistake" in caplog.text

    run(scenario)
