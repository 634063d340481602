"""`ottla server start` where it cannot: one line that names the setting."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.formatting import format_directories, new_cluster_id
from ottla.cli.local_node import LocalNode
from ottla.testing.processes import free_port_block


@pytest.fixture
def node(tmp_path: Path) -> LocalNode:
    found = LocalNode(tmp_path, 1, free_port_block(1))
    found.write_properties(found.texts({"controller.quorum.voters": f"1@localhost:{found.controller_port}"}, 1))
    format_directories(found.properties, new_cluster_id(), ignore_formatted=False)
    return found


@pytest.fixture
def somebody(node: LocalNode, request: pytest.FixtureRequest) -> Iterator[int]:
    """Listens on the node's port for clients, or for controllers."""
    ports = {"PLAINTEXT": node.port, "CONTROLLER": node.controller_port, "metrics": node.metrics_port}
    port = ports[request.param]
    with socket.create_server(("localhost", port)):
        yield port


@pytest.mark.parametrize(
    ("somebody", "setting"),
    [
        ("PLAINTEXT", "listeners=PLAINTEXT://"),
        ("CONTROLLER", "listeners=CONTROLLER://"),
        ("metrics", "ottla.metrics.listener="),
    ],
    indirect=["somebody"],
)
def test_a_taken_port_is_told_with_the_setting_to_change(node: LocalNode, somebody: int, setting: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "server", "start", "--config", str(node.properties)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr == (
        f"ottla: node 1 stopped: {setting}localhost:{somebody}: another process listens there: "
        "end it, or give this listener another port\n"
    )
