"""The way out when most voters are lost for good: the walk of docs/quorum.md, with real processes."""

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.initial_controllers import InitialControllers
from ottla.cli.local_node import LocalNode
from ottla.testing.processes import ProcessCluster, wait_for

TOPIC, RECORDS = "kept", 200


def quorum(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", "quorum", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def recover(node: LocalNode, *words: str) -> dict[str, Any]:
    done = quorum("recover", "-c", str(node.properties), "-o", "json", *words)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    return dict(row)


def write(cluster: ProcessCluster, first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(60) == 0


def read(cluster: ProcessCluster, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "check"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []

    def all_there() -> bool:
        found.extend(int(each.value() or b"-1") for each in consumer.consume(1000, 0.2) if each.error() is None)
        return len(found) >= count

    wait_for(all_there, f"{count} records", 60)
    consumer.close()
    return found


def is_full(cluster: ProcessCluster) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partition = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions[0]
    return len(partition.isrs) == 3


def elect_from_what_is_left(cluster: ProcessCluster, survivor: LocalNode) -> None:
    """The last replica in sync may have been on a lost disk, as far as the metadata knows: a person says that what is left counts."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partition = TopicPartition(TOPIC, 0)

    def is_led() -> bool:
        admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(60)
        return admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions[0].leader == survivor.node_id

    wait_for(is_led, "a leader", 60)


def format_anew(cluster: ProcessCluster, node: LocalNode, survivor: LocalNode) -> None:
    """An empty disk in the place of the lost one, which follows the survivor."""
    shutil.rmtree(node.home / "data")
    lines = node.properties.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("controller.quorum.voters")]
    kept.append(f"controller.quorum.bootstrap.servers=localhost:{survivor.controller_port}")
    node.properties.write_text("\n".join(kept) + "\n", encoding="utf-8")
    cluster.format(node, InitialControllers(none=True))


def test_a_quorum_that_lost_two_of_three_disks_goes_on_from_the_third() -> None:
    with ProcessCluster(nodes=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(60)
        cluster.wait_for_topic(TOPIC)
        write(cluster, 0)
        for node in cluster.nodes:
            cluster.kill(node.node_id)
        seen = {node.node_id: recover(node) for node in cluster.nodes}
        best = max(seen.values(), key=lambda row: (row["last epoch"], row["end offset"]))
        survivor = cluster.node(best["node"])
        others = [node for node in cluster.nodes if node is not survivor]

        done = recover(survivor, "--execute")
        assert done["voters"] == [survivor.node_id]
        assert done["no longer voters"] == [node.node_id for node in others]
        assert done["last epoch"] == done["epoch"] > best["promised epoch"]
        cluster.start(survivor.node_id)
        elect_from_what_is_left(cluster, survivor)
        for node in others:
            format_anew(cluster, node, survivor)
            cluster.start(node.node_id)

            def joined(node: LocalNode = node) -> bool:
                words = ("-b", cluster.bootstrap_servers, "-c", str(node.properties))
                return quorum("add-controller", *words).returncode == 0

            wait_for(joined, f"node {node.node_id} to vote", 60)
        wait_for(lambda: is_full(cluster), "the replicas to be there again", 60)
        assert sorted(read(cluster, RECORDS)) == list(range(RECORDS))
        cluster.kill(survivor.node_id)
        write(cluster, RECORDS)
        assert sorted(read(cluster, 2 * RECORDS)) == list(range(2 * RECORDS))


@pytest.fixture(scope="module")
def alone() -> Any:
    with ProcessCluster(nodes=1) as cluster:
        yield cluster


def test_a_node_that_runs_is_left_alone(alone: ProcessCluster) -> None:
    done = quorum("recover", "-c", str(alone.node(1).properties), "--execute")
    assert done.returncode == 1
    assert "is in use by another process" in done.stderr


def test_looking_changes_nothing(alone: ProcessCluster) -> None:
    alone.kill(1)
    node = alone.node(1)
    before, after = recover(node), recover(node)
    assert before == after
    assert before["voters"] == [1]
    alone.start(1)
