"""How long no metadata can be committed when the active controller goes: by kill -9, and by SIGTERM.

    python -m tests.benchmarks.failover [--rounds 50] [--hand-overs 20] [--kinds ottla,kafka]

Three voters with default settings. A client of a broker that survives changes a topic's setting over and over, one request
in flight: the time is from the signal to the answer of the first request that was sent after it (kill), or the longest any
request took until the process was gone (SIGTERM). The node is started again each time. Each round's line goes to standard
error; the table, in Markdown, to standard output.
"""

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence

from tests.benchmarks.clusters import KINDS, Cluster, running
from tests.benchmarks.wire_client import RequestFailed, WireClient, wait_for_quorum

NODES = 3
TOPIC = "failover"
SETTLE_S = 1.0


def committed_change(client: WireClient, number: int) -> float:
    """Changes a setting, however often that has to be asked for; the seconds it took."""
    began = time.monotonic()
    while True:
        try:
            client.alter_topic(TOPIC, "retention.ms", str(1_000_000 + number))
        except RequestFailed:
            time.sleep(0.001)
        else:
            return time.monotonic() - began


def one_round(cluster: Cluster, number: int, how: signal.Signals) -> float:
    leader = wait_for_quorum(cluster.address(number % NODES + 1), NODES)
    time.sleep(SETTLE_S)
    survivors = [node for node in range(1, NODES + 1) if node != leader]
    counter = itertools.count(number * 1_000_000)
    with WireClient(cluster.address(survivors[number % len(survivors)])) as client:
        for _ in range(5):
            committed_change(client, next(counter))
        os.kill(cluster.pid(leader), how)
        took = committed_change(client, next(counter))
        while how is signal.SIGTERM and cluster.is_alive(leader):
            took = max(took, committed_change(client, next(counter)))
    while cluster.is_alive(leader):
        time.sleep(0.01)
    cluster.start(leader)
    return took * 1000


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure(kind: str, rounds: int, how: signal.Signals) -> None:
    if not rounds:
        return
    took = []
    with running(kind, NODES) as cluster:
        wait_for_quorum(cluster.address(1), NODES)
        with WireClient(cluster.address(1)) as client:
            client.create_topic(TOPIC, 1, NODES)
        for number in range(rounds):
            took.append(one_round(cluster, number, how))
            print(f"{kind} {how.name} round {number + 1}: {took[-1]:.1f} ms", file=sys.stderr, flush=True)
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    print(f"| {kind} | {how.name} | {len(took)} | {p50:.0f} | {p99:.0f} | {max(took):.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--hand-overs", type=int, default=20)
    parser.add_argument("--kinds", default="ottla", help=f"of {', '.join(KINDS)}; Apache Kafka takes 15 s a round")
    args = parser.parse_args()
    print("| cluster | signal | rounds | p50 ms | p99 ms | max ms |\n|---|---|---:|---:|---:|---:|")
    for kind in args.kinds.split(","):
        measure(kind, args.rounds, signal.SIGKILL)
        measure(kind, args.hand_overs, signal.SIGTERM)


if __name__ == "__main__":
    main()
