"""`ottla up` as a person uses it: twice, in another shape, with nodes that die and come back, and its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.local_node import LocalNode
from ottla.testing.processes import free_port_block, wait_for

STOP_MAX_S = 30  # of a busy machine


class Up:
    """A running `ottla up` and what it printed."""

    def __init__(self, home: Path, *words: str, nodes: int = 1, port: int | None = None) -> None:
        self.home = home
        self.port = port or free_port_block(nodes)
        self.ready_file = home.with_name(home.name + ".ready")
        self._output = home.with_name(home.name + ".output")
        command = [sys.executable, "-m", "ottla.cli.main", "up", "--nodes", str(nodes), "--port", str(self.port)]
        command += ["--ready-file", str(self.ready_file), *(words or ("--dir", str(home)))]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def wait_ready(self) -> None:
        wait_for(lambda: self.ready_file.exists() or self.process.poll() is not None, "`up` to be ready", timeout_s=60)
        assert self.process.poll() is None, self.output

    def node(self, node_id: int = 1) -> LocalNode:
        return LocalNode(self.home, node_id, self.port + node_id - 1)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """The exit code, and that it came within seconds."""
        self.process.send_signal(number)
        return self.process.wait(STOP_MAX_S)


@contextmanager
def running(home: Path, *words: str, nodes: int = 1, port: int | None = None) -> Iterator[Up]:
    up = Up(home, *words, nodes=nodes, port=port)
    try:
        up.wait_ready()
        yield up
    finally:
        if up.process.poll() is None:
            up.end()


def ottla(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 1, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_nodes_gracefully_within_seconds(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path / "cluster", nodes=3) as up:
        pids = [up.node(node_id).alive_pid() for node_id in (1, 2, 3)]
        assert None not in pids

        assert up.end(number) == 0

        assert up.output.splitlines()[-1] == "stopped"
        assert not up.ready_file.exists()
        for node in (up.node(node_id) for node_id in (1, 2, 3)):
            assert node.alive_pid() is None
            assert not node.pid_file.exists()
            assert (node.home / "data" / ".kafka_cleanshutdown").exists()
            assert "Traceback" not in node.log_file.read_text(encoding="utf-8")


def test_a_signal_while_it_starts_stops_what_was_started(tmp_path: Path) -> None:
    up = Up(tmp_path / "cluster", nodes=3)
    wait_for(lambda: up.node(3).log_file.exists(), "node 3 to be started")

    assert up.end() == 0

    assert "Traceback" not in up.output
    assert all(up.node(node_id).alive_pid() is None for node_id in (1, 2, 3))


def test_a_second_up_on_the_same_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with running(tmp_path / "cluster") as up:
        result = ottla("up", "--nodes", "1", "--dir", up.home, "--port", str(up.port))

        refused(result, "in use", str(up.node().pid()))
        assert ottla("topics", "list", "--bootstrap-server", f"localhost:{up.port}").returncode == 0


def test_a_taken_port_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with running(tmp_path / "cluster") as up:
        refused(
            ottla("up", "--nodes", "1", "--dir", tmp_path / "b", "--port", str(up.port)), f"port {up.port} is taken"
        )
        assert not (tmp_path / "b").exists()


def test_up_twice_in_a_row_works_and_another_shape_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "cluster") as up:
        assert up.end() == 0
    refused(ottla("up", "--nodes", "3", "--dir", up.home, "--port", str(up.port)), "holds 1 nodes, not 3")
    refused(ottla("up", "--nodes", "1", "--dir", up.home, "--port", str(free_port_block(1))), "--port")
    with running(tmp_path / "cluster", port=up.port) as again:
        assert again.end() == 0


@pytest.mark.parametrize("whose", ["nobody's", "another program's"])
def test_a_stale_pid_file_is_no_obstacle(tmp_path: Path, whose: str) -> None:
    """A pid that is in use again belongs to another program, which is neither waited for nor killed."""
    with running(tmp_path / "cluster") as up:
        assert up.end() == 0
    gone = subprocess.Popen(["true"])
    gone.wait()
    other = subprocess.Popen(["sleep", "600"])
    stale = gone.pid if whose == "nobody's" else other.pid
    up.node().pid_file.write_text(f"{stale}\n", encoding="utf-8")

    with running(tmp_path / "cluster", port=up.port) as again:
        assert again.node().pid() not in (gone.pid, other.pid)
        assert again.end() == 0

    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_killed_node_is_reported_and_a_start_by_hand_brings_it_back(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", nodes=3) as up:
        node = up.node(1)
        pid = node.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: f"node 1 (pid {pid}) died by SIGKILL" in up.output, "the death to be reported")

        command = [sys.executable, "-m", "ottla.cli.main", "server", "start", "--config", str(node.properties)]
        by_hand = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: f"node 1 is back (pid {by_hand.pid})" in up.output, "the return to be reported")
        wait_for(lambda: node.ready_file.exists(), "node 1 to be ready")

        assert up.end() == 0
        assert by_hand.wait(STOP_MAX_S) == 0, "`up` stops whoever runs on its directories"


def test_ephemeral_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with running(tmp_path / "cluster", "--ephemeral") as up:
        assert list((tmp_path / "temporary").iterdir())
        assert up.end() == 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_node_that_does_not_start_is_named_with_its_reason(tmp_path: Path) -> None:
    with running(tmp_path / "cluster") as up:
        assert up.end() == 0
    properties = up.node().properties
    properties.write_text(properties.read_text(encoding="utf-8") + "no.such.setting=1\n", encoding="utf-8")

    refused(ottla("up", "--nodes", "1", "--dir", up.home, "--port", str(up.port)), "no.such.setting")


def test_a_detached_cluster_of_separate_roles_serves_until_it_is_taken_down(tmp_path: Path) -> None:
    home, port = tmp_path / "cluster", free_port_block(3)
    words = ["up", "--controllers", "1", "--brokers", "2", "--dir", str(home), "--port", str(port), "--detach"]
    at = ["--dir", str(home)]
    try:
        up = ottla(*words, "--set", "num.partitions=4", "--topic", "flights:3:2")
        assert up.returncode == 0, up.stderr
        assert f"stop it: ottla down --dir {home}" in up.stdout

        again = ottla(*words, "--topic", "flights:3:2", "--topic", "late:1:1")
        assert (again.returncode, again.stderr) == (0, "")
        assert "is up already" in again.stdout
        refused(ottla(*words, "--set", "num.partitions=5"), "takes effect at a start", "ottla down")
        topics = ottla("topics", "list", "-b", f"localhost:{port + 1}", "-o", "json").stdout
        told = [(each["topic"], each["partitions"], each["leaderless"]) for each in json.loads(topics)]
        assert told == [("flights", 3, 0), ("late", 1, 0)]
        quorum = json.loads(ottla("quorum", "describe", "-b", f"localhost:{port}", "-o", "json").stdout)
        assert [(each["node"], each["role"]) for each in quorum] == [(3, "leader"), (1, "observer"), (2, "observer")]
    finally:
        down = ottla("down", *at)
    assert (down.returncode, down.stdout) == (0, "stopped 3 nodes\n")
    assert all(LocalNode(home, number, 0).alive_pid() is None for number in (1, 2, 3))
    assert ottla("down", *at).stdout == f"no node runs in {home}\n"


def test_a_detached_cluster_that_cannot_start_leaves_no_node_behind(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", nodes=2) as up:
        assert up.end() == 0
    properties = up.node(2).properties
    properties.write_text(properties.read_text(encoding="utf-8") + "log.dirs=/proc/nowhere\n", encoding="utf-8")

    words = ["up", "--nodes", "2", "--dir", str(up.home), "--port", str(up.port), "--detach"]
    result = ottla(*words)

    assert result.returncode == 1
    assert all(up.node(number).alive_pid() is None for number in (1, 2))
