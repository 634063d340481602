"""Real processes take snapshots of the metadata, forget the log before them, and catch up from them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.cli.client import Client
from ottla.cli.local_node import LocalNode
from ottla.testing.processes import ProcessCluster, wait_for

SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.max.retention.bytes": "1"}
PLAIN_BROKER = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(nodes=3, settings=SETTINGS) as running:
        running.add_node({**SETTINGS, "process.roles": "broker"})
        yield running


def admin_of(node: LocalNode) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"localhost:{node.port}"})


def create(cluster: ProcessCluster, topic: str) -> None:
    admin = admin_of(cluster.node(1))
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)


def has_topic(node: LocalNode, topic: str) -> bool:
    admin = admin_of(node)
    return topic in admin.list_topics(timeout=60).topics


def change_settings(cluster: ProcessCluster, topic: str, times: int) -> None:
    """About 150 bytes of the metadata log each time."""
    admin = admin_of(cluster.node(1))
    for number in range(times):
        setting = ConfigEntry("retention.ms", str(10**9 + number), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[setting])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(60)


def metadata_directory(node: LocalNode) -> Path:
    return node.home / "data" / "__cluster_metadata-0"


def latest_snapshot(node: LocalNode) -> int:
    """Where it ends; 0 when there is none."""
    return max((int(path.name[:20]) for path in metadata_directory(node).glob("*.checkpoint")), default=0)


def log_start(node: LocalNode) -> int:
    """Of the oldest segment that is there; 0 where one took another's place as the folder was listed, and neither was seen."""
    return min((int(path.name[:20]) for path in metadata_directory(node).glob("*.log")), default=0)


def committed_end(cluster: ProcessCluster) -> int:
    """As node 1 says: an administrator would ask any node, perhaps the one that was just killed. And that may have led."""
    asked = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    told: list[int] = []

    def is_told() -> bool:
        answer = client.call(DescribeQuorumRequest(topics=asked), DescribeQuorumResponse)
        told.extend(each.partitions[0].high_watermark for each in answer.topics)
        return bool(told)

    with Client(f"localhost:{cluster.node(1).port}") as client:
        wait_for(is_told, "a leader of the quorum")
    return told[0]


def go_on_until_the_log_begins_behind(cluster: ProcessCluster, offset: int, topic: str, nodes: list[LocalNode]) -> None:
    for _ in range(20):
        change_settings(cluster, topic, 20)
        if all(log_start(node) > offset for node in nodes):
            return
    raise AssertionError(f"the log still begins at {[log_start(node) for node in nodes]}, not behind {offset}")


def was_given_a_snapshot(node: LocalNode) -> bool:
    return "the metadata is taken from the snapshot at" in node.log_file.read_text(encoding="utf-8")


def test_every_node_takes_snapshots_and_forgets_the_log_before_them(cluster: ProcessCluster) -> None:
    create(cluster, "first")
    go_on_until_the_log_begins_behind(cluster, 20, "first", cluster.nodes)
    for node in cluster.nodes:
        assert latest_snapshot(node) > 20
        assert len(list(metadata_directory(node).glob("*.checkpoint"))) <= 2
        assert has_topic(node, "first")


def test_a_voter_that_lags_behind_the_log_catches_up_from_a_snapshot(cluster: ProcessCluster) -> None:
    create(cluster, "before")
    lagging = cluster.node(3)
    cluster.kill(lagging.node_id)
    behind = committed_end(cluster)
    create(cluster, "meanwhile")
    go_on_until_the_log_begins_behind(cluster, behind, "meanwhile", [cluster.node(1), cluster.node(2)])
    lagging.log_file.write_text("", encoding="utf-8")
    cluster.start(lagging.node_id)
    wait_for(lambda: has_topic(lagging, "meanwhile"), "the node to catch up")
    assert was_given_a_snapshot(lagging)
    assert log_start(lagging) > behind
    create(cluster, "afterwards")
    wait_for(lambda: has_topic(lagging, "afterwards"), "the node to follow the log again")


def test_a_plain_broker_without_its_metadata_comes_back(cluster: ProcessCluster) -> None:
    create(cluster, "known")
    broker = cluster.node(PLAIN_BROKER)
    cluster.kill(PLAIN_BROKER)
    shutil.rmtree(metadata_directory(broker))
    broker.log_file.write_text("", encoding="utf-8")
    cluster.start(PLAIN_BROKER)
    wait_for(lambda: has_topic(broker, "known"), "the broker to know everything again")
    assert was_given_a_snapshot(broker)
