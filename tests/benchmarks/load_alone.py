"""Whether load alone makes a cluster believe that somebody died: session timeouts, ISR shrinks, elections. There must be none.

    python -m tests.benchmarks.load_alone [--minutes 10] [--producers 1] [--consumers 1] [--timeout-ms 2000]

Three combined nodes; bulk producers (acks=all, three replicas, batches of up to 1 MB) and bulk consumers at full speed, with
broker.session.timeout.ms and replica.lag.time.max.ms short, and a heartbeat every quarter of that. Retention is small, so
segments are rolled and deleted all the while. Prints what came of it; exit code 1 if there was any of the three, and then
what the nodes warned of.
"""

import argparse
import sys
import time
import urllib.request

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli.client import Client
from ottla.testing.processes import ProcessCluster
from tests.peers.load.beside import Bulk, producer_args

NODES = 3
PARTITIONS = 6
TOPIC = "load-alone"
TOPIC_SETTINGS = {"min.insync.replicas": "2", "retention.bytes": "200000000", "segment.bytes": "50000000"}
SHRINKS = "kafka_server_replicamanager_isrshrinks_total"
TIMEOUTS = "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount_total"
QUORUM_EPOCH = "kafka_server_raftmetrics_current_epoch"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
LONGEST_TURN = 'ottla_loop_turn_seconds{quantile="1"}'
LOOK_S = 30.0
WARNINGS_SHOWN = 40

Samples = dict[str, float]


def scrape(cluster: ProcessCluster) -> list[Samples]:
    """Every sample of each node."""
    found = []
    for node in cluster.nodes:
        with urllib.request.urlopen(f"http://{node.metrics_listener}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        found.append({name: float(value) for name, _, value in samples})
    return found


def of_all(nodes: list[Samples], name: str) -> float:
    return sum(samples.get(name, 0) for samples in nodes)


def partition_epochs(cluster: ProcessCluster) -> int:
    """The sum of the leader epochs: each election of a partition's leader raises it."""
    asked = MetadataRequest([MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    with Client(f"localhost:{cluster.nodes[0].port}") as client:
        [topic] = client.call(asked, MetadataResponse).topics
    return sum(each.leader_epoch for each in topic.partitions)


class Seen:
    """What happened since this was made."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster
        self._before = scrape(cluster)
        self._epochs = partition_epochs(cluster)
        self._began = time.monotonic()
        self._longest_turn_s = 0.0

    def look(self) -> None:
        """The longest turn is kept for a minute only."""
        for samples in scrape(self._cluster):
            self._longest_turn_s = max(self._longest_turn_s, samples.get(LONGEST_TURN, 0))

    def since(self) -> dict[str, float]:
        now, took = scrape(self._cluster), time.monotonic() - self._began

        def more(name: str) -> float:
            return of_all(now, name) - of_all(self._before, name)

        epochs = zip((each[QUORUM_EPOCH] for each in self._before), (each[QUORUM_EPOCH] for each in now), strict=True)
        return {
            "session timeouts": more(TIMEOUTS),
            "ISR shrinks": more(SHRINKS),
            "elections of the quorum": max(after - before for before, after in epochs),
            "elections of partitions": partition_epochs(self._cluster) - self._epochs,
            "seconds": round(took),
            "MB/s in": round(more(BYTES_IN) / took / 1e6, 1),
            "MB/s out to consumers": round(more(BYTES_OUT) / took / 1e6, 1),
            "longest turn of a loop, ms": round(self._longest_turn_s * 1000),
        }


EVENTS = ("session timeouts", "ISR shrinks", "elections of the quorum", "elections of partitions")


def run(cluster: ProcessCluster, minutes: float, producers: int, consumers: int) -> dict[str, float]:
    bootstrap = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, NODES, config=TOPIC_SETTINGS)])[TOPIC].result(60)
    cluster.wait_for_topic(TOPIC, PARTITIONS)
    parts = [word for number in range(PARTITIONS) for word in ("-p", str(number))]
    seen = Seen(cluster)
    bulk = [Bulk(bootstrap, TOPIC, *producer_args("-1", 1_000_000_000)) for _ in range(producers)]
    bulk += [Bulk(bootstrap, TOPIC, "-C", *parts, "-o", "end") for _ in range(consumers)]
    try:
        until = time.monotonic() + minutes * 60
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))
            seen.look()
        return seen.since()
    finally:
        for each in bulk:
            each.stop()


def warnings(cluster: ProcessCluster) -> list[str]:
    found = []
    for node in cluster.nodes:
        lines = node.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [f"node {node.node_id}: {line}" for line in lines if " WARNING " in line or " ERROR " in line]
    return found[-WARNINGS_SHOWN:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--timeout-ms", type=int, default=2000)
    args = parser.parse_args()
    settings = {
        "broker.session.timeout.ms": str(args.timeout_ms),
        "replica.lag.time.max.ms": str(args.timeout_ms),
        "broker.heartbeat.interval.ms": str(args.timeout_ms // 4),
        "log.retention.check.interval.ms": "2000",
    }
    with ProcessCluster(NODES, settings=settings) as cluster:
        got = run(cluster, args.minutes, args.producers, args.consumers)
        for name, value in got.items():
            print(f"{name:<28} {value:>10,.10g}")
        if any(got[name] for name in EVENTS):
            print(*warnings(cluster), sep="\n")
            sys.exit(1)


if __name__ == "__main__":
    main()
