"""A real broker with two log directories, one of which goes."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic as KafkaNewTopic

from ottla.testing.cluster import Cluster
from ottla.testing.processes import wait_for

TOPIC, PARTITIONS = "flights", 6


def test_the_loss_of_a_directory_costs_its_partitions_only() -> None:
    """Renamed away, which is what an unmounted disk looks like; the open files go on working, as they would there."""
    with Cluster(nodes=1, log_directories=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        second = cluster.log_directories(1)[1]

        def replicas(directory: Path) -> list[int]:
            return sorted(int(path.name.rpartition("-")[2]) for path in directory.glob(f"{TOPIC}-*"))

        both = cluster.log_directories(1)
        wait_for(lambda: sum(len(replicas(each)) for each in both) == PARTITIONS, "every replica to be made")
        lost = replicas(second)
        assert len(lost) == PARTITIONS // 2

        second.rename(second.with_name("unmounted"))
        second.mkdir()

        def leaderless() -> list[int]:
            partitions = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
            return sorted(each.id for each in partitions if each.leader == -1)

        wait_for(lambda: leaderless() == lost, "the lost partitions, and no others, to be without a leader")
        delivered: list[int | None] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for index in range(PARTITIONS):
            if index not in lost:
                producer.produce(
                    TOPIC,
                    b"value",
                    partition=index,
                    on_delivery=lambda _, message: delivered.append(message.partition()),
                )
        assert producer.flush(60) == 0
        assert sorted(each for each in delivered if each is not None) == [
            index for index in range(PARTITIONS) if index not in lost
        ]
        assert list(second.iterdir()) == []


def test_a_replica_moves_to_another_directory_for_a_client_that_asks() -> None:
    with Cluster(nodes=1, log_directories=2) as cluster:
        servers = cluster.bootstrap_servers.split(",")
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.create_topics([KafkaNewTopic(TOPIC, 1, 1)])
        producer = KafkaProducer(bootstrap_servers=servers)
        for number in range(100):
            producer.send(TOPIC, b"%d" % number, partition=0)
        producer.flush()
        directories = cluster.log_directories(1)
        (source,) = (path for path in directories if (path / f"{TOPIC}-0").exists())
        (target,) = (path for path in directories if path != source)

        admin.alter_replica_log_dirs({(TOPIC, 0, 1): str(target)})

        wait_for((target / f"{TOPIC}-0").exists, "the replica to be there")
        wait_for(lambda: not (source / f"{TOPIC}-0").exists(), "the replica to be gone here")
        producer.send(TOPIC, b"100", partition=0)
        producer.close()
        consumer = KafkaConsumer(TOPIC, bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
        found: list[bytes] = []
        while len(found) < 101:
            for batch in consumer.poll(10_000).values():
                found += [record.value for record in batch]
        consumer.close()
        admin.close()
        assert found == [b"%d" % number for number in range(101)]
