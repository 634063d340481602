"""Metrics as an on-call engineer gets them: over HTTP and with `ottla metrics`, from real nodes."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.testing.processes import ProcessCluster, wait_for

UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
MESSAGES_IN = "kafka_server_brokertopicmetrics_messagesin_total"
RECORDS = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """Three nodes with a topic of three replicas and some records in it."""
    with ProcessCluster(nodes=3) as found:
        words = ["topics", "create", "flights", "--partitions", "6", "--replication-factor", "3", "-b"]
        assert ottla(*words, found.bootstrap_servers).returncode == 0
        found.wait_for_topic("flights", 6)
        producer = Producer({"bootstrap.servers": found.bootstrap_servers, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("flights", str(number).encode())
        assert producer.flush(60) == 0
        yield found


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def scraped(cluster: ProcessCluster, node_id: int) -> dict[str, float]:
    """What a Prometheus would take from the node: the sums of the samples, by name."""
    with urllib.request.urlopen(f"http://{cluster.node(node_id).metrics_listener}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_prometheus_reads_every_node(cluster: ProcessCluster) -> None:
    active = "kafka_controller_kafkacontroller_activecontrollercount"
    wait_for(lambda: sum(scraped(cluster, node_id)[active] for node_id in (1, 2, 3)) == 1, "one active controller")
    nodes = [scraped(cluster, node_id) for node_id in (1, 2, 3)]
    assert sum(each[MESSAGES_IN] for each in nodes) == RECORDS
    assert all(each["kafka_server_replicamanager_partitioncount"] == 6 for each in nodes)
    assert all(each["process_resident_memory_bytes"] > 1 << 20 for each in nodes)


def test_a_person_asks_for_what_is_of_interest(cluster: ProcessCluster) -> None:
    listener = cluster.node(2).metrics_listener
    shown = ottla("metrics", "partitioncount", "--listener", listener)
    assert shown.returncode == 0, shown.stderr
    assert ["kafka_server_replicamanager_partitioncount", "-", "6"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    rows = json.loads(ottla("metrics", "-o", "json", "--listener", listener).stdout)
    assert {"metric", "labels", "value", "kind", "help"} <= rows[0].keys()


def test_a_dead_node_shows_at_the_others(cluster: ProcessCluster) -> None:
    cluster.kill(3, signal.SIGKILL)
    wait_for(lambda: sum(scraped(cluster, node)[UNDER_REPLICATED] for node in (1, 2)) == 6, "the ISR to shrink")
    fenced = "kafka_controller_kafkacontroller_fencedbrokercount"
    wait_for(lambda: scraped(cluster, 1)[fenced] == 1, "the broker to be fenced")
    assert ottla("metrics", "--listener", cluster.node(3).metrics_listener).returncode == 1
