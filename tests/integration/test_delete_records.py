"""DeleteRecords on three replicas: nobody brings back what the client was told is gone."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import ProcessCluster

RECORDS = 20


def test_deleted_records_are_gone_on_every_replica(cluster: ProcessCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for created in admin.create_topics([NewTopic(topic, 1, 3)]).values():
        created.result(60)
    cluster.wait_for_topic(topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0

    for offset in (7, 12):  # the second time the partition is idle, and every replica has begun elsewhere before
        for deleted in admin.delete_records([TopicPartition(topic, 0, offset)], request_timeout=60).values():
            assert deleted.result(60).low_watermark == offset

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (12, RECORDS)
    consumer.close()
