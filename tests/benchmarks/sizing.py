"""What one more broker on the same machine is worth: requests a second and MB/s of one and of two brokers; docs/sizing.md.

    python -m tests.benchmarks.sizing [--brokers 1,2] [--rounds 2] [--rows small,bulk,bulk-16k,replicated]

One controller and so many brokers (`ottla up --controllers 1 --brokers N`), the clients on the same cores. small: 1,000
connections with one record of 100 B in flight each, acks=1, divided among the brokers. bulk: two librdkafka producers of 1 KB
records, acks=1, batches of up to 1 MB (bulk-16k: of 16 KB), six partitions over all brokers. replicated: bulk-16k with as many
replicas as there are brokers, acks=all. Each round takes fresh clusters, in turn. "cores" is what all nodes used together.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import free_port_block, wait_for
from tests.benchmarks.clusters import cpu_s
from tests.peers.load.load import TOOLS, touch_memory

ROWS = ("small", "bulk", "bulk-16k", "replicated")
PARTITIONS = 6
CONNECTIONS = 1000
SMALL_S = 8
PRODUCERS = 2
RECORD_BYTES = 1000
RECORDS = {"bulk": 2_000_000, "bulk-16k": 500_000, "replicated": 500_000}
BATCHES_OF_16K = ("-X", "batch.size=16384", "-X", "queue.buffering.max.messages=1000000")


class Brokers:
    """A cluster with one controller."""

    def __init__(self, home: Path, count: int, port: int) -> None:
        self.ports = [port + number for number in range(count)]
        self.bootstrap = ",".join(f"localhost:{each}" for each in self.ports)
        self.pids = [int((home / f"node-{number}" / "pid").read_text()) for number in range(1, count + 2)]
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def make_topic(self, name: str, assignment: list[list[int]]) -> None:
        topic = NewTopic(name, len(assignment), replica_assignment=assignment)
        self._admin.create_topics([topic])[name].result(60)
        wait_for(lambda: self._has_leaders(name, len(assignment)), f"leaders of {name}")

    def _has_leaders(self, name: str, partitions: int) -> bool:
        found = self._admin.list_topics(name, timeout=20).topics[name].partitions
        return len(found) == partitions and all(each.leader > 0 for each in found.values())

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(60)


@contextmanager
def brokers(count: int) -> Iterator[Brokers]:
    home, port = Path(tempfile.mkdtemp(prefix="bench-sizing-")), free_port_block(count + 1)
    ready = home / "ready"
    command = [sys.executable, "-m", "ottla.cli.main", "up", "--controllers", "1", "--brokers", str(count)]
    more = ["--dir", str(home / "cluster"), "--port", str(port), "--ready-file", str(ready)]
    cluster = subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL)
    try:
        wait_for(ready.exists, "the cluster")
        yield Brokers(home / "cluster", count, port)
    finally:
        cluster.terminate()
        cluster.wait(60)
        shutil.rmtree(home, ignore_errors=True)


def run(commands: list[list[str]]) -> tuple[list[str], float]:
    """What they said, and the seconds until the last had ended."""
    began = time.monotonic()
    processes = [
        subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for each in commands
    ]
    said = [process.communicate(timeout=600)[0] for process in processes]
    took = time.monotonic() - began
    for process, words in zip(processes, said, strict=True):
        if process.returncode:
            raise SystemExit(f"{process.args!r}: {words[-600:]}")
    return said, took


def small(cluster: Brokers) -> dict[str, float]:
    """Each broker leads a topic of its own."""
    commands = []
    for number, port in enumerate(cluster.ports, start=1):
        name = f"small-{number}"
        cluster.make_topic(name, [[number]] * PARTITIONS)
        each = CONNECTIONS // len(cluster.ports)
        words = ["localhost", str(port), name, str(PARTITIONS), str(each), str(SMALL_S), "100"]
        commands.append([str(TOOLS / "connections"), *words])
    before = cpu_s(cluster.pids)
    said, took = run(commands)
    cpu = cpu_s(cluster.pids) - before
    figures = [json.loads(each) for each in said]
    rate = sum(each["requests_s"] for each in figures)
    p99 = max(each["p99_us"] for each in figures) / 1000
    return {"requests_s": rate, "p99_ms": p99, "cores": cpu / took}


def bulk(cluster: Brokers, row: str) -> dict[str, float]:
    count, name = len(cluster.ports), f"row-{row}"
    replicas = count if row == "replicated" else 1
    starts = [number % count for number in range(PARTITIONS)]
    cluster.make_topic(name, [[1 + (start + more) % count for more in range(replicas)] for start in starts])
    words = [
        str(TOOLS / "rdkafka_performance"),
        "-b",
        cluster.bootstrap,
        "-t",
        name,
        "-q",
        "-P",
        "-s",
        str(RECORD_BYTES),
    ]
    words += ["-c", str(RECORDS[row]), "-a", "-1" if row == "replicated" else "1", "-X", "linger.ms=5"]
    before = cpu_s(cluster.pids)
    _, took = run([[*words, *(BATCHES_OF_16K if row != "bulk" else ())]] * PRODUCERS)
    cpu = cpu_s(cluster.pids) - before
    cluster.delete_topic(name)
    moved = PRODUCERS * RECORDS[row] * RECORD_BYTES
    return {"mb_s": moved / took / 1e6, "cores": cpu / took, "cpu_s_per_gb": cpu / (moved / 1e9)}


def measure(cluster: Brokers, row: str) -> dict[str, float]:
    return small(cluster) if row == "small" else bulk(cluster, row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="1,2")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", default=",".join(ROWS))
    args = parser.parse_args()
    counts = [int(each) for each in args.brokers.split(",")]
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    touch_memory()
    for _ in range(args.rounds):
        for count in counts:
            with brokers(count) as cluster:
                for row in args.rows.split(","):
                    for name, value in measure(cluster, row).items():
                        found.setdefault((row, name), {}).setdefault(count, []).append(value)
    print("| row | figure |", " | ".join(f"{count} brokers" for count in counts), "|\n|---|---|" + "---|" * len(counts))
    for (row, name), values in found.items():
        cells = (
            f"{statistics.mean(values[count]):,.2f} ({'; '.join(f'{each:,.2f}' for each in values[count])})"
            for count in counts
        )
        print(f"| {row} | {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
