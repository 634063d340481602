"""A real broker with two log directories, one of which goes."""

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.cluster import Cluster
from ottla.testing.processes import wait_for

TOPIC, PARTITIONS = "flights", 6


def test_the_loss_of_a_directory_costs_its_partitions_only() -> None:
    """Renamed away, which is what an unmounted disk looks like; the open files go on working, as they would there."""
    with Cluster(nodes=1, log_directories=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
        second = cluster.log_directories(1)[1]
        lost = sorted(int(path.name.rpartition("-")[2]) for path in second.glob(f"{TOPIC}-*"))
        assert len(lost) == PARTITIONS // 2

        second.rename(second.with_name("unmounted"))
        second.mkdir()

        def leaderless() -> list[int]:
            partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
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
        assert producer.flush(20) == 0
        assert sorted(each for each in delivered if each is not None) == [
            index for index in range(PARTITIONS) if index not in lost
        ]
        assert list(second.iterdir()) == []
