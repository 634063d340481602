"""Preferred leaders and reassignments, asked for by unchanged clients."""

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic

from ottla.testing.processes import ProcessCluster


def test_librdkafka_elects_the_preferred_leader_that_kafka_python_chose(cluster: ProcessCluster, topic: str) -> None:
    servers = cluster.bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=servers.split(","))
    admin.create_topics([NewTopic(topic, replica_assignments={0: [1, 2, 3]})])
    partition = TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({partition: [2, 1, 3]}) == {partition: None}
    assert admin.list_partition_reassignments() == {}
    admin.close()

    librdkafka = AdminClient({"bootstrap.servers": servers})
    asked = ConfluentPartition(topic, 0)
    elected = librdkafka.elect_leaders(ElectionType.PREFERRED, [asked]).result(60)[asked]
    again = librdkafka.elect_leaders(ElectionType.PREFERRED, [asked]).result(60)[asked]

    assert elected is None
    assert again is not None
    assert again.name() == "ELECTION_NOT_NEEDED"
