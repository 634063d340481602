"""What a small client waits while others commit offsets, send heartbeats, join and run transactions on the same broker, as fast as they can.

    python -m tests.benchmarks.beside_groups [--runs 4] [--only ottla]

One node of each, runs alternate, the first of each warms it up. One connection asks ApiVersions every 5 ms ("ping"), another produces one
record of 100 B, acks=1, every 20 ms, while tests/peers/load/groups.py does everything it does, from 64 connections and eight producers.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.clusters import KINDS, ROOT, Cluster, running
from tests.benchmarks.groups_side_by_side import SETTINGS
from tests.peers.load.beside import Ping, percentiles, sample

TOPIC = "beside-groups"
PING_S, PRODUCE_S = 0.005, 0.02


def measure(cluster: Cluster, seconds: float) -> dict[str, float]:
    host, port = cluster.address(1)
    tool = [sys.executable, "-m", "tests.peers.load.groups", f"{host}:{port}", str(cluster.pid(1))]
    load = subprocess.Popen([*tool, "--seconds", str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pings: list[float] = []
    produces: list[float] = []
    producer = Producer({"bootstrap.servers": f"{host}:{port}", "linger.ms": 0, "acks": 1})

    def produce() -> None:
        producer.produce(TOPIC, b"x" * 100)
        producer.flush(30)

    until = time.monotonic() + 4 * seconds + 1  # its four parts
    small = threading.Thread(target=sample, args=(produce, PRODUCE_S, until, produces))
    small.start()
    sample(Ping(host, port), PING_S, until, pings)
    small.join()
    producer.close()
    told = json.loads(load.communicate()[0])
    rates = {part: told[part]["per_s"] for part in ("commit", "heartbeat", "transaction_8")}
    return {**percentiles("ping", pings), **percentiles("produce", produces), **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4, help="of each, with the one that warms it up")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", choices=KINDS)
    args = parser.parse_args()
    kinds = [args.only] if args.only else KINDS
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        clusters = {kind: stack.enter_context(running(kind, 1, SETTINGS)) for kind in kinds}
        for cluster in clusters.values():
            admin = AdminClient({"bootstrap.servers": "{}:{}".format(*cluster.address(1))})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        for number in range(args.runs):
            for kind, cluster in clusters.items():
                figures = measure(cluster, args.seconds)
                print(f"{kind} {number + 1}: {json.dumps(figures)}", flush=True)
                if number:
                    found[kind].append(figures)
    for kind, runs in found.items():
        medians = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]} if runs else {}
        print(f"{kind}: {json.dumps(medians)}")


if __name__ == "__main__":
    main()
