"""Topics of so many partitions that a broker takes them on over turns of its loop."""

from ottla.broker.replication.hosting import CREATION_COST, TURN_COST
from ottla.proto import metadata_pb2 as pb
from ottla.testing.replication.broker import TOPIC_ID, Broker
from ottla.testing.replication.cluster import Cluster, run

MANY = 5 * TURN_COST // CREATION_COST


def hosted(broker: Broker) -> int:
    assert broker.manager is not None
    return sum(isinstance(key[0], bytes) for key in broker.manager.partitions)


def test_a_large_topic_is_taken_on_over_turns_of_the_loop() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=MANY)
        broker = cluster.brokers[1]
        steps = set()

        def done() -> bool:
            steps.add(hosted(broker))
            return all(hosted(each) == MANY for each in cluster.brokers.values())

        await cluster.until(done)
        assert len(steps) > 3
        client = await cluster.client()
        assert (await client.produce(b"x", index=MANY - 1)).error_code == 0

    run(scenario)


def test_a_replica_that_waited_has_the_role_that_the_metadata_gives_it_by_then() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=MANY)
        last = MANY - 1
        assert hosted(cluster.brokers[1]) < MANY
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=last, isr=pb.Replicas(ids=(1, 2)))
        cluster.tell(pb.MetadataRecord(partition_change=change))
        await cluster.until(lambda: hosted(cluster.brokers[1]) == MANY)
        manager = cluster.brokers[1].manager
        assert manager is not None
        leader = manager.partitions[TOPIC_ID, last].leader
        assert leader is not None
        assert leader.isr.committed == (1, 2)
        client = await cluster.client()
        assert (await client.produce(b"x", index=last)).error_code == 0

    run(scenario)


def test_a_topic_deleted_while_it_waits_leaves_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=MANY)
        broker = cluster.brokers[1]
        await cluster.until(lambda: hosted(broker) > 0)
        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        await cluster.until(lambda: hosted(broker) == 0)
        waited = cluster.loop.time()
        await cluster.until(lambda: cluster.loop.time() > waited + 1)
        assert hosted(broker) == 0

    run(scenario)
