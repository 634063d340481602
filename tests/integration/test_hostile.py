"""Hostile bytes, a full disk and a broken start: one clear line each, nothing lost, the others go on."""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from ottla.cli.local_node import LocalNode
from ottla.testing.processes import ProcessCluster, free_port_block, wait_for

TOPIC = "kept"
START_S = 60
OF_PEERS = re.compile(r" WARNING ottla\.(quorum\.(?!rpc)|broker\.(?!network|process|server))")
GARBAGE = b"\x00\x00\x00\x10" + b"\xff" * 16
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 64

CLIENT_BYTES = {
    "a frame of 2 GB": (b"\x7f\xff\xff\xff", "a request of 2147483647 bytes is over socket.request.max.bytes"),
    "a negative frame": (b"\xff\xff\xff\xfe", "a request of -2 bytes cannot be"),
    "garbage": (GARBAGE, "API key -1"),
    "HTTP": (HTTP, "it speaks HTTP"),
    "TLS": (TLS, "it speaks TLS"),
}


@pytest.fixture(scope="module")
def trio() -> Iterator[ProcessCluster]:
    """Three nodes with one record in them."""
    with ProcessCluster(nodes=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(60)
        running.wait_for_topic(TOPIC)
        assert produce(running, b"before") is None
        yield running


@pytest.fixture
def single() -> Iterator[ProcessCluster]:
    """One node with one record in it."""
    with ProcessCluster(nodes=1) as running:
        assert produce(running, b"before") is None
        yield running


def produce(cluster: ProcessCluster, value: bytes) -> KafkaError | None:
    """The error of one record sent without retries, or None."""
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "retries": 0})
    producer.produce(TOPIC, value, on_delivery=lambda error, _message: outcome.append(error))
    assert producer.flush(60) == 0
    return outcome[0]


def first_record(cluster: ProcessCluster) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: Message | None = consumer.poll(30)
    consumer.close()
    assert found is not None, "no record came"
    assert found.error() is None
    value: bytes | None = found.value()
    return value


def goes_on(cluster: ProcessCluster) -> None:
    """Nothing lost, and it takes more."""
    assert first_record(cluster) == b"before"
    assert produce(cluster, b"after") is None


def send(port: int, data: bytes) -> bytes:
    """What the listener answers before it closes the connection."""
    with socket.create_connection(("localhost", port), timeout=60) as connection:
        connection.sendall(data)
        answer = b""
        try:
            while more := connection.recv(4096):
                answer += more
        except ConnectionResetError:
            pass
        return answer


def log_of(node: LocalNode) -> str:
    return node.log_file.read_text(encoding="utf-8")


def new_lines(node: LocalNode, before: str, words: str) -> list[str]:
    """What else than news is there since ``before``, once ``words`` are in it. Without what a busy machine makes the node
    say of its peers."""
    wait_for(lambda: words in log_of(node)[len(before) :], f"{words!r} in the log")
    lines = log_of(node)[len(before) :].splitlines()
    return [line for line in lines if " INFO " not in line and not OF_PEERS.search(line)]


def ottla(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 1, and one line on standard error with these words."""
    assert result.returncode == 1, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]


def other_node(cluster: ProcessCluster, home: Path, changes: dict[str, str], node_id: int = 1) -> Path:
    """A server.properties like that node's with ports and directories of its own, and these changes."""
    home.mkdir()
    node, port = cluster.node(node_id), free_port_block(1)
    text = node.properties.read_text(encoding="utf-8").replace(str(node.home), str(home))
    settings = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    settings["listeners"] = f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{port + 1000}"
    settings["advertised.listeners"] = f"PLAINTEXT://localhost:{port}"
    del settings["ottla.metrics.listener"]
    settings.update(changes)
    path = home / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return path


def cluster_id(cluster: ProcessCluster) -> str:
    return (cluster.home / "cluster.id").read_text(encoding="utf-8").strip()


# Bytes


@pytest.mark.parametrize("what", CLIENT_BYTES)
def test_hostile_bytes_on_the_client_port_get_one_line(trio: ProcessCluster, what: str) -> None:
    node, (data, words) = trio.node(2), CLIENT_BYTES[what]
    before = log_of(node)

    assert send(node.port, data) == b""

    lines = new_lines(node, before, words)
    assert len(lines) == 1, lines
    goes_on(trio)


@pytest.mark.parametrize("what", CLIENT_BYTES)
def test_hostile_bytes_on_the_controller_port_get_one_line(trio: ProcessCluster, what: str) -> None:
    """Who speaks no gRPC there is a client of Kafka's protocol."""
    node, (data, words) = trio.node(2), CLIENT_BYTES[what]
    before = log_of(node)

    assert send(node.controller_port, data) == b""

    lines = new_lines(node, before, words)
    assert len(lines) == 1, lines
    goes_on(trio)


def test_garbage_behind_a_grpc_preface_leaves_the_controller_up(trio: ProcessCluster) -> None:
    node = trio.node(2)
    before = log_of(node)

    send(node.controller_port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64)

    goes_on(trio)
    assert "Traceback" not in log_of(node)[len(before) :]


# A start that cannot work


@pytest.mark.parametrize("leads", [True, False])
def test_a_second_node_with_the_same_id_ends_with_one_line(trio: ProcessCluster, tmp_path: Path, leads: bool) -> None:
    """Also that of the quorum's leader, of which the others tell a twin that it is it."""
    admin = KafkaAdminClient(bootstrap_servers=trio.bootstrap_servers.split(","))
    leader: int = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"]
    admin.close()
    first = trio.node(leader if leads else leader % 3 + 1)
    soon = {"initial.broker.registration.timeout.ms": "3000", "broker.session.timeout.ms": "3000"}
    properties = other_node(trio, tmp_path / "twin", soon, first.node_id)
    assert ottla("storage", "format", "-t", cluster_id(trio), "-c", properties).returncode == 0

    result = ottla("server", "start", "--config", properties)

    refused(result, f"broker {first.node_id} cannot register")
    assert "another running process" in (tmp_path / "twin" / "server.log").read_text(encoding="utf-8")
    assert first.alive_pid() is not None
    goes_on(trio)


def test_a_second_start_on_a_running_nodes_directory_ends_with_one_line(trio: ProcessCluster) -> None:
    node = trio.node(1)
    before, pid = log_of(node), node.pid()

    result = ottla("server", "start", "--config", node.properties)

    refused(result, "in use")
    assert len(new_lines(node, before, "in use")) == 1
    assert node.alive_pid() == pid
    assert node.pid_file.exists()
    assert node.ready_file.exists()
    goes_on(trio)


def test_an_unknown_setting_ends_with_one_line(trio: ProcessCluster, tmp_path: Path) -> None:
    properties = other_node(trio, tmp_path / "other", {"log.retentoin.ms": "5"})
    refused(ottla("server", "start", "--config", properties), "log.retentoin.ms")


def test_a_directory_that_cannot_be_written_ends_with_one_line(trio: ProcessCluster, tmp_path: Path) -> None:
    """Below a regular file nobody can make a directory, not even root."""
    (tmp_path / "file").write_text("")
    properties = other_node(trio, tmp_path / "other", {"log.dirs": str(tmp_path / "file" / "data")})
    for result in (
        ottla("storage", "format", "-t", cluster_id(trio), "-c", properties),
        ottla("server", "start", "--config", properties),
        ottla("up", "--nodes", "1", "--dir", tmp_path / "file" / "up", "--port", str(free_port_block(1))),
    ):
        refused(result, str(tmp_path / "file"))


def test_a_log_file_that_cannot_be_written_ends_with_one_line(trio: ProcessCluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    properties = other_node(trio, tmp_path / "other", {"ottla.log.file": str(tmp_path / "file" / "server.log")})
    refused(ottla("server", "start", "--config", properties), str(tmp_path / "file"))


def test_a_damaged_meta_properties_ends_with_one_line(trio: ProcessCluster, tmp_path: Path) -> None:
    properties = other_node(trio, tmp_path / "other", {})
    assert ottla("storage", "format", "-t", cluster_id(trio), "-c", properties).returncode == 0
    (tmp_path / "other" / "data" / "meta.properties").write_bytes(b"version=1\n\xff\xfe\n")
    refused(ottla("server", "start", "--config", properties), "meta.properties")


def test_directories_of_two_clusters_end_with_one_line(trio: ProcessCluster, tmp_path: Path) -> None:
    mixed = f"{tmp_path / 'other' / 'data'},{tmp_path / 'foreign'}"
    properties = other_node(trio, tmp_path / "other", {})
    assert ottla("storage", "format", "-t", cluster_id(trio), "-c", properties).returncode == 0
    text = properties.read_text(encoding="utf-8")
    foreign = tmp_path / "foreign.properties"
    foreign.write_text(text.replace(str(tmp_path / "other" / "data"), str(tmp_path / "foreign")), encoding="utf-8")
    assert ottla("storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", foreign).returncode == 0
    properties.write_text(text.replace(str(tmp_path / "other" / "data"), mixed), encoding="utf-8")

    refused(ottla("server", "start", "--config", properties), "AAAAAAAAAAAAAAAAAAAAAQ", cluster_id(trio))


def test_a_directory_of_another_cluster_ends_with_one_line(trio: ProcessCluster, tmp_path: Path) -> None:
    """The whole node is another cluster's: the members of this one are the first who can tell."""
    properties = other_node(trio, tmp_path / "other", {})
    assert ottla("storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties).returncode == 0

    result = ottla("server", "start", "--config", properties)

    refused(result, "AAAAAAAAAAAAAAAAAAAAAQ")
    goes_on(trio)


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_a_taken_port_ends_with_one_line(trio: ProcessCluster, tmp_path: Path, listener: str) -> None:
    node, port = trio.node(1), free_port_block(1)
    ports = {"PLAINTEXT": port, "CONTROLLER": port + 1000}
    ports[listener] = node.port if listener == "PLAINTEXT" else node.controller_port
    listeners = ",".join(f"{name}://localhost:{number}" for name, number in ports.items())
    properties = other_node(trio, tmp_path / "other", {"listeners": listeners})
    assert ottla("storage", "format", "-t", cluster_id(trio), "-c", properties).returncode == 0

    result = ottla("server", "start", "--config", properties)

    refused(result, str(ports[listener]))
    assert str(ports[listener]) in (tmp_path / "other" / "server.log").read_text(encoding="utf-8")
    goes_on(trio)


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """128 MB that a test may fill."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_refuses_records_serves_the_old_ones_and_recovers(small_disk: Path) -> None:
    floor = {"ottla.free.bytes.floor": str(32 << 20)}
    filler = small_disk / "filler"
    with ProcessCluster(nodes=1, home=small_disk / "ottla", settings=floor) as cluster:
        assert produce(cluster, b"before") is None

        filler.write_bytes(bytes(110 << 20))
        errors: list[KafkaError] = []

        def is_refused() -> bool:
            error = produce(cluster, b"refused?")
            errors.extend([error] if error else [])
            return bool(errors)

        wait_for(is_refused, "a refusal")
        assert errors[0].code() == KafkaError.KAFKA_STORAGE_ERROR
        assert first_record(cluster) == b"before"

        filler.unlink()
        wait_for(lambda: produce(cluster, b"after") is None, "records to be taken again")
        assert first_record(cluster) == b"before"
        log = log_of(cluster.node(1))
        assert log.count("takes no more data") == 1
        assert log.count("takes data again") == 1
        assert "Traceback" not in log
