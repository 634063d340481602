"""`ottla up`: the part that needs no processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla.cli import up, up_run
from ottla.cli.failures import CommandError
from ottla.cli.local_cluster import LocalCluster, Shape
from ottla.cli.local_node import LocalNode
from ottla.cli.up_words import BrokerCount
from ottla.runtime.settings.definitions import SettingError
from ottla.testing.ports import free_port_block


class Imagined(LocalCluster):
    """No nodes; remembers that it was stopped."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, [], Shape(), "cluster")
        self.stopped = False

    def stop(self, timeout_s: float) -> list[object]:  # type: ignore[override]  # there are none
        self.stopped = True
        return []


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, lambda *_: None)  # one that nobody takes would end the tests
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_detached_cluster_stays_though_nobody_reads_that_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ottla up --detach | head -1``: the first line says that it serves."""

    def echo(line: str) -> None:
        if "ready" not in line:
            raise BrokenPipeError

    monkeypatch.setattr(click, "echo", echo)
    cluster = Imagined(tmp_path)
    with pytest.raises(BrokenPipeError):
        up_run.run_cluster(cluster, [], None, detach=True)
    assert not cluster.stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_a_line_is_printed_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def echo(_line: str) -> None:
        try:
            os.kill(os.getpid(), number)
        except Exception:  # noqa: BLE001 - as click does where it asks a stream whether it is a terminal
            return

    def watch(_cluster: LocalCluster) -> None:
        pytest.fail("the signal was lost")

    monkeypatch.setattr(click, "echo", echo)
    monkeypatch.setattr(up_run, "_watch", watch)
    cluster = Imagined(tmp_path)

    up_run.run_cluster(cluster, [], None)

    assert cluster.stopped


def test_brokers_are_numbered_before_controllers() -> None:
    shape = Shape(only_brokers=2, only_controllers=1)
    nodes = shape.nodes(Path("home"), 9092)
    assert [node.texts({}, 1, shape.roles(node.node_id))["process.roles"] for node in nodes] == [
        "broker",
        "broker",
        "controller",
    ]
    assert shape.voters(nodes) == "3@localhost:10094"
    assert [node.ports(shape.roles(node.node_id)) for node in nodes] == [[9092, 11092], [9093, 11093], [10094, 11094]]


def test_one_broker_for_each_core_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    count = BrokerCount()
    assert [count.convert(each, None, None) for each in ("cores", "1", "64")] == [3, 1, 64]


def test_settings_are_checked_as_a_file_before_anything_is_written(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    with pytest.raises(SettingError) as caught:
        LocalCluster.prepare(home, Shape(both=1), 9092, {"num.partitions": "many", "num.partition": "1"})
    assert str(caught.value).splitlines() == [
        "--set: unknown setting num.partition; did you mean num.partitions?",
        "num.partitions=many: write a whole number",
    ]
    assert not home.exists()


def test_a_setting_given_again_changes_the_file_once(tmp_path: Path) -> None:
    node = LocalNode(tmp_path, 1, 9092)
    node.write_properties({"node.id": "1"})
    node.properties.write_text("# mine\nnum.partitions=3", encoding="utf-8")
    for text in ("4", "4", "5"):
        node.set({"num.partitions": text})
    assert (
        node.properties.read_text(encoding="utf-8") == "# mine\nnum.partitions=3\nnum.partitions=4\nnum.partitions=5\n"
    )
    assert node.has("num.partitions") == "5"


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_who_may_read_and_write_the_settings_still_may_after_one_is_set(tmp_path: Path, mode: int) -> None:
    node = LocalNode(tmp_path, 1, 9092)
    node.write_properties({"node.id": "1"})
    node.properties.chmod(mode)
    node.set({"num.partitions": "3"})
    assert node.properties.stat().st_mode & 0o777 == mode


def test_settings_of_a_person_in_another_encoding_are_told_with_their_line(tmp_path: Path) -> None:
    port = free_port_block(1, (0, 1000, 2000))
    node = LocalNode(tmp_path, 1, port)
    node.home.mkdir()
    node.properties.write_bytes(b"node.id=1\n# f\xfcr uns\n")
    for reads in (
        lambda: LocalCluster.prepare(tmp_path, Shape(both=1), port),
        lambda: node.has("node.id"),
        lambda: node.set({"num.partitions": "3"}),
    ):
        with pytest.raises(SettingError, match=r"server.properties, line 2: not UTF-8"):
            reads()


@pytest.mark.parametrize("room", [5, 100, 400])
def test_files_for_which_there_was_no_room_are_written_once_there_is(tmp_path: Path, room: int) -> None:
    home = tmp_path / "cluster"
    port = free_port_block(1, (0, 1000, 2000))
    kept = LocalNode(home, 1, port)
    script = (
        "import resource, sys; from pathlib import Path; from ottla.cli.local_cluster import LocalCluster, Shape\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        f"try: LocalCluster.prepare(Path(sys.argv[1]), Shape(both=1), {port}, {{'num.partitions': '3'}})\n"
        "except Exception: sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(home)], check=False).returncode == 7
    made = LocalCluster.prepare(home, Shape(both=1), port, {"num.partitions": "3"})
    assert len(made.cluster_id) == 22
    assert (kept.has("node.id"), kept.has("ottla.log.file")) == ("1", str(kept.log_file))
    before = kept.properties.read_text(encoding="utf-8")
    script = script.replace("'3'", "'4'")
    assert subprocess.run([sys.executable, "-c", script, str(home)], check=False).returncode == 7
    assert kept.properties.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--set", "num.partitions"], "write name=value"),
        (["--set", "node.id=7"], "each node has its own"),
        (["--topic", "flights"], "write NAME:PARTITIONS:REPLICAS"),
        (["--topic", "flights:0:1"], "write NAME:PARTITIONS:REPLICAS"),
        (["--topic", ":1:1"], "write NAME:PARTITIONS:REPLICAS"),
        (["--topic", "flights:1:1:1"], "write NAME:PARTITIONS:REPLICAS"),
        (["--topic", "flights:1:4"], "4 replicas need as many brokers, not 3"),
        (["--controllers", "1"], "both --controllers and --brokers"),
        (["--controllers", "1", "--brokers", "1", "--nodes", "2"], "both --controllers and --brokers"),
        (["--detach", "--ephemeral"], "there is nobody"),
        (["--controllers", "1", "--brokers", "all"], "not a valid integer"),
        (["--controllers", "1", "--brokers", "0"], "not in the range"),
    ],
)
def test_words_that_make_no_cluster_are_refused(tmp_path: Path, words: list[str], why: str) -> None:
    with pytest.raises(click.UsageError, match=why):
        up.up(["--dir", str(tmp_path / "home"), *words], standalone_mode=False)
    assert not (tmp_path / "home").exists()


def test_what_is_not_there_cannot_be_taken_down(tmp_path: Path) -> None:
    (tmp_path / "node-of-somebody").mkdir()
    with pytest.raises(CommandError, match="holds no nodes"):
        LocalCluster.found(tmp_path)


def test_another_program_with_the_pid_is_no_node(tmp_path: Path) -> None:
    node = LocalNode(tmp_path, 1, 9092)
    node.home.mkdir()
    command = [sys.executable, "-c", "import time; time.sleep(600)", "service", "start"]
    with subprocess.Popen(command) as other:
        node.pid_file.write_text(str(other.pid), encoding="utf-8")
        assert node.alive_pid() is None
        other.kill()


@pytest.mark.parametrize(
    "end", ["time.sleep(0.5)", "os.execv(sys.executable, ['python', '-c', 'import time; time.sleep(0.5)'])"]
)
def test_a_node_is_waited_for_until_its_process_is_gone(tmp_path: Path, end: str) -> None:
    """Its pid file goes before it does, and its command line: who starts it again at once would find its directory in use."""
    node = LocalNode(tmp_path, 1, 9092)
    node.home.mkdir()
    script = (
        "import os, signal, sys, time\n"
        f"def end(*_): os.unlink(sys.argv[3]); {end}; os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end); open(sys.argv[3], 'w').write(str(os.getpid())); print(flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, "server", "start", str(node.pid_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert LocalCluster.found(tmp_path).stop(30) == []
        assert process.poll() == 0
