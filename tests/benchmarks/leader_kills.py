"""How long librdkafka, with its default settings, gets nothing acknowledged when the leader it writes to dies by kill -9.

    python -m tests.benchmarks.leader_kills [--kills 30] [--busy 3] [--idle] [--kinds ottla,kafka]

Three combined nodes, one partition on all of them, an idempotent producer with a record every 5 ms (acks=all). The kills come
at any moment of the client's second, in which it looks at its topics once. The longest time between two acknowledgements
around each kill counts; a node is started again and in the ISR before the next dies. `--busy`: so many busy loops beside it.
`--idle`: a record a second, nothing else, and one right after the kill; what counts is the longest that one of them had to wait
from the kill on. Each round's line goes to standard error; the table, in Markdown, to standard output.
"""

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.clusters import KINDS, Cluster, running
from tests.benchmarks.failover import percentile
from tests.peers.load.failover import leader_of, wait_full

NODES = 3
TOPIC = "leader-kills"
BUSY_S, IDLE_S = 0.005, 1.0
BUSY_LOOP = [sys.executable, "-c", "while True: pass"]


class Client:
    """Produces until it is stopped, and notes when records are acknowledged."""

    def __init__(self, bootstrap: str, every_s: float) -> None:
        self.acknowledged: list[float] = []
        self.waits: list[tuple[float, float]] = []
        """From when until when."""
        self._every_s = every_s
        self.failed = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 2}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.produce()
            until = time.monotonic() + self._every_s
            while (left := until - time.monotonic()) > 0 and not self._stop.is_set():
                self._producer.poll(min(left, BUSY_S))
        self._producer.flush(60)

    def produce(self) -> None:
        delivered = partial(self._delivered, time.monotonic())
        self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=delivered)

    def _delivered(self, began: float, error: KafkaError | None, _: Message) -> None:
        if error:
            self.failed += 1
        else:
            self.acknowledged.append(time.monotonic())
            self.waits.append((began, self.acknowledged[-1]))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def longest_silence(self, around: float) -> float:
        times = [each for each in self.acknowledged if each > around - 0.5]
        return max(after - before for before, after in itertools.pairwise(times))

    def longest_wait(self, since: float) -> float:
        return max(after - max(before, since) for before, after in self.waits if after > since)


def one_kill(cluster: Cluster, bootstrap: str, admin: AdminClient, *, idle: bool) -> float:
    client = Client(bootstrap, IDLE_S if idle else BUSY_S)
    try:
        leader = leader_of(bootstrap, TOPIC)
        time.sleep(2 + random.random())
        killed = time.monotonic()
        os.kill(cluster.pid(leader), signal.SIGKILL)
        if idle:
            client.produce()  # or most kills would fall between two records
        while time.monotonic() < killed + 60 and not (client.acknowledged and client.acknowledged[-1] > killed + 2):
            time.sleep(0.1)
    finally:
        client.stop()
    while cluster.is_alive(leader):
        time.sleep(0.01)
    cluster.start(leader)
    wait_full(admin, TOPIC, NODES)
    if client.failed:
        print(f"{client.failed} records failed", file=sys.stderr)
    return (client.longest_wait(killed) if idle else client.longest_silence(killed)) * 1000


@contextmanager
def busy(loops: int) -> Iterator[None]:
    processes = [subprocess.Popen(BUSY_LOOP) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def measure(kind: str, kills: int, loops: int, *, idle: bool) -> None:
    took: list[float] = []
    with running(kind, NODES) as cluster:
        bootstrap = ",".join("{}:{}".format(*cluster.address(node)) for node in range(1, NODES + 1))
        admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000, "log_level": 2})
        made = admin.create_topics([NewTopic(TOPIC, 1, NODES, config={"min.insync.replicas": "2"})])
        made[TOPIC].result(60)
        with busy(loops):
            for number in range(kills):
                took.append(one_kill(cluster, bootstrap, admin, idle=idle))
                print(f"{kind}, {loops} busy loops, kill {number + 1}: {took[-1]:.0f} ms", file=sys.stderr, flush=True)
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    print(
        f"| {kind}{', idle' if idle else ''} | {loops} | {len(took)} | {p50:.0f} | {p99:.0f} | {max(took):.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--kinds", default="ottla", help=f"of {', '.join(KINDS)}; Apache Kafka takes 30 s a kill")
    args = parser.parse_args()
    print("| cluster | busy loops | kills | p50 ms | p99 ms | max ms |\n|---|---:|---:|---:|---:|---:|")
    for kind in args.kinds.split(","):
        measure(kind, args.kills, args.busy, idle=args.idle)


if __name__ == "__main__":
    main()
