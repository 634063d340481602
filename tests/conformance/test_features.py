"""Kafka's own kafka-features and kafka-cluster turn a static quorum into one whose voters the log names."""

import re
import subprocess
from pathlib import Path

import pytest

from ottla.testing.processes import ProcessCluster

KAFKA = str(Path(__file__).parents[1] / "peers" / "kafka" / "kafka")
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"


@pytest.fixture(scope="module", autouse=True)
def kafka() -> None:
    subprocess.run([KAFKA, "install"], check=True, timeout=600)


def tool(name: str, cluster: ProcessCluster, *words: str) -> str:
    """What it says, be it on standard error."""
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    where = (*server, *words) if name == FEATURES else (*words, *server)
    command = [KAFKA, "run", name, *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def finalized(cluster: ProcessCluster) -> str:
    found = re.search(r"Feature: kraft.version.*FinalizedVersionLevel: (\d+)", tool(FEATURES, cluster, "describe"))
    assert found is not None
    return found[1]


def test_kafkas_tools_upgrade_kraft_version_and_unregister_a_node() -> None:
    with ProcessCluster(nodes=1) as cluster:
        assert finalized(cluster) == "0"
        raised = ("upgrade", "--feature", "kraft.version=1")
        assert "can be upgraded to 1" in tool(FEATURES, cluster, *raised, "--dry-run")
        assert finalized(cluster) == "0"
        assert "was upgraded to 1" in tool(FEATURES, cluster, *raised)
        assert finalized(cluster) == "1"
        refused = tool(FEATURES, cluster, "downgrade", "--feature", "kraft.version=0")
        assert "kraft.version has no downgrade" in refused

        node = cluster.add_node()
        cluster.kill(node.node_id)
        assert "Broker 2 is no longer registered" in tool(CLUSTER, cluster, "unregister", "--id", "2")
        assert "is not registered" in tool(CLUSTER, cluster, "unregister", "--id", "7")
