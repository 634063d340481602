"""Kafka's own kafka-metadata-quorum changes the voters of an Ottla cluster."""

import re
import subprocess
from pathlib import Path

import pytest

from ottla.testing.processes import ProcessCluster, wait_for

KAFKA = str(Path(__file__).parents[1] / "peers" / "kafka" / "kafka")
COMMAND = "org.apache.kafka.tools.MetadataQuorumCommand"


@pytest.fixture(scope="module", autouse=True)
def kafka() -> None:
    subprocess.run([KAFKA, "install"], check=True, timeout=600)


def quorum(cluster: ProcessCluster, *words: str) -> str:
    """What the tool says. Raises CalledProcessError where it ends with an error."""
    command = [KAFKA, "run", COMMAND, "--bootstrap-server", cluster.bootstrap_servers, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def test_kafkas_tool_adds_shows_and_removes_a_controller() -> None:
    with ProcessCluster(nodes=1) as cluster:
        node = cluster.add_node()
        config = ("--command-config", str(node.properties))
        wait_for(lambda: "observer" in quorum(cluster, "describe", "--replication").lower(), "node 2 to follow")
        assert "Added controller 2" in quorum(cluster, *config, "add-controller")
        status = quorum(cluster, "describe", "--status")
        assert re.search(r"CurrentVoters:.*\"id\": 1.*\"id\": 2", status)
        assert f"localhost:{node.controller_port}" in status.replace("//", "")

        rows = [line.split() for line in quorum(cluster, "describe", "--replication").splitlines()]
        leader = next(row for row in rows if row[-1].lower() == "leader")
        removal = ("--controller-id", leader[0], "--controller-directory-id", leader[1])
        quorum(cluster, "remove-controller", *removal)
        wait_for(
            lambda: re.search(r"LeaderId:\s+2", quorum(cluster, "describe", "--status")) is not None, "node 2 to lead"
        )
