#!/usr/bin/env python3
"""What a small client waits while others move bulk data through the same broker, on any Kafka-wire broker.

python -m tests.peers.load.beside HOST:PORT[,...] PID[,PID...] [--producers 1] [--consumers 0] [--seconds 8] [--replicas 1]

One connection asks ApiVersions every 5 ms ("ping"), another produces one record of 100 B, acks=1, every 20 ms ("produce"),
while rdkafka_performance (see `build`) produces 1 KB records in batches of up to 1 MB, linger 5 ms, acks=all where there are
replicas, or reads them from the beginning, over and over. One JSON line: times in ms, bulk in MB/s, and what the broker's
processes PID took for it. Needs confluent-kafka. Run A and B alternately, three times at least.
"""

import argparse
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOOL = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache/peers")) / "load/rdkafka_performance"
PARTITIONS = 4
RECORD_BYTES = 1000
RECORDS_TO_READ = 1_000_000
WARM_S = 1.5
TICK = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: list[int]) -> float:
    """User and system time of processes."""
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICK


def percentiles(name: str, times_ms: list[float]) -> dict[str, float]:
    times_ms.sort()
    last = len(times_ms) - 1
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {f"{name}_{key}_ms": round(times_ms[min(last, int(len(times_ms) * s))], 2) for key, s in shares.items()}


class Ping:
    """ApiVersions, one request in flight."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = 0

    def __call__(self) -> None:
        self._asked += 1
        body = struct.pack(">hhih", 18, 0, self._asked, 4) + b"ping"
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._read(4))
        self._read(size)

    def _read(self, size: int) -> bytes:
        got = self._socket.recv(size, socket.MSG_WAITALL)
        if len(got) < size:
            raise SystemExit("the broker closed the ping's connection")
        return got


def sample(action: Callable[[], None], pause_s: float, until: float, times_ms: list[float]) -> None:
    while time.monotonic() < until:
        start = time.monotonic()
        action()
        times_ms.append((time.monotonic() - start) * 1000)
        time.sleep(pause_s)


class Bulk:
    """rdkafka_performance until it is stopped: one that ended is started again."""

    def __init__(self, bootstrap: str, topic: str, *args: str) -> None:
        self._command = [str(TOOL), "-b", bootstrap, "-t", topic, "-q", *args]
        self._said = ""
        self._stopped = False
        self._start()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _go_on(self) -> None:
        while True:
            self._said += self._process.communicate()[0]
            if self._process.returncode or self._stopped:
                return
            self._start()

    def stop(self) -> int:
        """The bytes of records it consumed, as it says at its end; a producer is not asked."""
        self._stopped = True
        failed = self._process.poll() not in (None, 0)
        if "-C" in self._command:
            self._process.send_signal(signal.SIGINT)
            self._thread.join(2)
        self._process.kill()
        self._thread.join()
        if failed:
            raise SystemExit(f"{self._command}: {self._said[-600:]}")
        return sum(int(consumed) for consumed in re.findall(r"messages \((\d+) bytes\) consumed", self._said))


@contextmanager
def producing(bootstrap: str, topic: str, acks: str) -> Iterator[None]:
    """One bulk producer while the block runs."""
    bulk = Bulk(bootstrap, topic, *producer_args(acks, 1_000_000_000))
    try:
        yield
    finally:
        bulk.stop()


def producer_args(acks: str, count: int) -> list[str]:
    return ["-P", "-s", str(RECORD_BYTES), "-c", str(count), "-a", acks, "-X", "linger.ms=5"]


class Beside:
    """Measures on one cluster; each measurement makes its own two topics, and removes them."""

    def __init__(self, bootstrap: str, pids: list[int]) -> None:
        self._bootstrap, self._pids = bootstrap, pids
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def measure(self, producers: int, consumers: int, seconds: float, replicas: int) -> dict[str, float]:
        run = time.time_ns()
        big, small = f"beside-bulk-{run}", f"beside-small-{run}"
        made = self._admin.create_topics([NewTopic(big, PARTITIONS, replicas), NewTopic(small, 1, replicas)])
        for future in made.values():
            future.result(60)
        acks = "-1" if replicas > 1 else "1"
        if consumers:
            command = [str(TOOL), "-b", self._bootstrap, "-t", big, "-q", *producer_args(acks, RECORDS_TO_READ)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        written, cpu, began = self.end_offsets(big), cpu_s(self._pids), time.monotonic()
        bulk = [Bulk(self._bootstrap, big, *producer_args(acks, 1_000_000_000)) for _ in range(producers)]
        for index in range(consumers):
            bulk.append(Bulk(self._bootstrap, big, "-C", "-p", str(index % PARTITIONS), "-o", "beginning", "-e"))
        try:
            time.sleep(WARM_S)
            waits = self._small_clients(small, seconds)
        finally:
            moved = sum(each.stop() for each in bulk)
        took, cpu = time.monotonic() - began, cpu_s(self._pids) - cpu
        moved += (self.end_offsets(big) - written) * RECORD_BYTES
        for gone in self._admin.delete_topics([big, small]).values():
            gone.result(60)
        return waits | {"bulk_mb_s": round(moved / took / 1e6, 1), "cpu_s_per_gb": round(cpu / (moved / 1e9), 3)}

    def _small_clients(self, topic: str, seconds: float) -> dict[str, float]:
        host, _, port = self._bootstrap.split(",")[0].rpartition(":")
        ping = Ping(host, int(port))
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": 1, "linger.ms": 0})

        def produce() -> None:
            producer.produce(topic, b"x" * 100)
            if producer.flush(60):
                raise SystemExit("a small record was not acknowledged in 60 s")

        produce()  # connects
        until = time.monotonic() + seconds
        ping_ms: list[float] = []
        produce_ms: list[float] = []
        threads = [
            threading.Thread(target=sample, args=(ping, 0.005, until, ping_ms)),
            threading.Thread(target=sample, args=(produce, 0.02, until, produce_ms)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return percentiles("ping", ping_ms) | percentiles("produce", produce_ms)

    def end_offsets(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "beside"})
        try:
            for _ in range(50):
                try:
                    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
                    return sum(int(consumer.get_watermark_offsets(part, timeout=20)[1]) for part in parts)
                except KafkaException:  # a leader that does not know it yet
                    time.sleep(0.1)
        finally:
            consumer.close()
        raise SystemExit(f"{topic}: no leader")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap")
    parser.add_argument("pids")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--replicas", type=int, default=1)
    args = parser.parse_args()
    beside = Beside(args.bootstrap, [int(pid) for pid in args.pids.split(",")])
    print(json.dumps(beside.measure(args.producers, args.consumers, args.seconds, args.replicas)))


if __name__ == "__main__":
    main()
