"""`ottla server health` says what a container's probe wants to know."""

import subprocess
import sys

from ottla.testing.processes import ProcessCluster


def health(properties: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", "server", "health", "-c", str(properties), "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_node_is_well_while_it_runs_and_not_when_it_is_gone() -> None:
    with ProcessCluster(nodes=1) as cluster:
        node = cluster.node(1)
        well = health(node.properties)
        assert well.returncode == 0, well.stderr
        assert f"localhost:{node.controller_port}" in well.stdout
        assert f"localhost:{node.port}" in well.stdout
        cluster.kill(1)
        gone = health(node.properties)
        assert gone.returncode == 1
        assert "no broker answers" in gone.stderr
        node.ready_file.unlink(missing_ok=True)
        unready = health(node.properties)
        assert unready.returncode == 1
        assert "is not ready" in unready.stderr
