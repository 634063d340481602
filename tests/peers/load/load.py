#!/usr/bin/env python3
"""The same work on any Kafka-wire broker, with C clients: what it took, and what it cost the broker.

python -m tests.peers.load.load BOOTSTRAP NAME PID[,PID...] [ROW...]     one JSON line a row, appended to NAME.jsonl and printed
python -m tests.peers.load.load --compare A.jsonl B.jsonl                medians side by side, and B / A

PIDs are the broker's processes (their CPU and memory are read from /proc). Needs confluent-kafka for topic creation and the
tools of `build`. Rows: produce-1k produce-100 produce-16k produce-rf3 produce-16k-rf3 consume-1k consume-rf3 latency
latency-rf3 connections connections-beside beside-1 beside-2 beside-consume beside-rf3 (what small clients wait beside one and
two bulk producers, two bulk consumers, and one producer with replicas: see beside.py). Rows in -rf3: acks=all, three nodes.
Run A and B alternately, three times at least, on an otherwise idle machine, data directories on the same file system.
On a virtual machine, memory that was never touched costs the page cache several times more: the first call touches it all.
"""

import json
import mmap
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.peers.load.beside import PARTITIONS, RECORD_BYTES, Beside, cpu_s, producing

TOOLS = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache/peers")) / "load"
BESIDE_S = 8.0
GB = 1_000_000_000


def kilobytes(name: str, path: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", Path(path).read_text())
    assert found is not None
    return int(found[1])


def touch_memory() -> None:
    mark = Path("/dev/shm/load-touched")
    if not mark.exists():
        free = kilobytes("MemAvailable", "/proc/meminfo") * 1024
        with mmap.mmap(-1, int(free * 0.85)) as area:
            for at in range(0, len(area), 4096):
                area[at] = 1
        mark.touch()


def rss_mb(pids: list[int]) -> list[float]:
    return [round(kilobytes("VmRSS", f"/proc/{pid}/status") / 1024, 1) for pid in pids]


class Bench:
    def __init__(self, bootstrap: str, pids: list[int]) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap, self.pids = bootstrap, pids
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, name: str, partitions: int, replicas: int) -> str:
        from confluent_kafka.admin import NewTopic

        if name in self.admin.list_topics(timeout=20).topics:
            self.admin.delete_topics([name])[name].result(60)
            while name in self.admin.list_topics(timeout=20).topics:
                time.sleep(0.1)
        config = {"min.insync.replicas": str(min(2, replicas))}
        self.admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(60)
        time.sleep(1)
        return name

    def perf(self, *args: str) -> dict[str, float]:
        before = cpu_s(self.pids)
        out = subprocess.run(
            [TOOLS / "rdkafka_performance", "-b", self.bootstrap, "-q", *args],
            capture_output=True,
            text=True,
            timeout=600,
        )
        cpu = cpu_s(self.pids) - before
        text = out.stdout + out.stderr
        rates = re.findall(r"(\d+) msgs/s (?:and |\()([\d.]+) MB/s", text)
        if out.returncode or not rates:
            raise SystemExit(f"{args}: {text[-600:]}")
        return {"records_s": float(rates[-1][0]), "mb_s": float(rates[-1][1]), "cpu_s": round(cpu, 2)}

    def produce(self, size: int, count: int, replicas: int, acks: str, *properties: str) -> dict[str, object]:
        name = self.topic("load-produce", 1 if replicas == 1 else 6, replicas)
        extra = [word for p in ("linger.ms=5", *properties) for word in ("-X", p)]
        got = self.perf("-P", "-t", name, "-s", str(size), "-c", str(count), "-a", acks, *extra)
        return self.row(got, size * count)

    def row(self, got: dict[str, float], size: int) -> dict[str, object]:
        return {
            "mb_s": got["mb_s"],
            "records_s": got["records_s"],
            "cpu_s_per_gb": round(got["cpu_s"] / (size / GB), 3),
            "rss_mb": rss_mb(self.pids),
        }

    def consume(self, replicas: int, acks: str) -> dict[str, object]:
        name = self.topic("load-consume", 6, replicas)
        self.perf("-P", "-t", name, "-s", "1000", "-c", "1000000", "-a", acks, "-X", "linger.ms=5")
        parts = [word for p in range(6) for word in ("-p", str(p))]
        got = self.perf(
            "-C", "-t", name, *parts, "-o", "beginning", "-c", "900000", "-X", "fetch.message.max.bytes=1048576"
        )
        return self.row(got, 900_000_000)

    def latency(self, replicas: int, acks: str) -> dict[str, object]:
        name = self.topic(f"load-latency-{replicas}", 1, replicas)
        count = "20000" if replicas == 1 else "5000"
        out = subprocess.check_output([TOOLS / "latency", self.bootstrap, name, count, acks, "100"], timeout=600)
        figures: dict[str, object] = json.loads(out)
        return figures

    def connections_beside(self) -> dict[str, object]:
        """The same while one bulk producer runs; whose CPU is whose cannot be told."""
        name = self.topic("load-beside", PARTITIONS, 1)
        beside = Beside(self.bootstrap, self.pids)
        with producing(self.bootstrap, name, "1"):
            before, began = beside.end_offsets(name), time.monotonic()
            got = self.connections()
            moved = (beside.end_offsets(name) - before) * RECORD_BYTES
        del got["cpu_us_per_request"]
        return got | {"bulk_mb_s": round(moved / (time.monotonic() - began) / 1e6, 1)}

    def beside(self, producers: int, consumers: int, replicas: int) -> dict[str, object]:
        figures = Beside(self.bootstrap, self.pids).measure(producers, consumers, BESIDE_S, replicas)
        return {**figures, "rss_mb": rss_mb(self.pids)}

    def connections(self) -> dict[str, object]:
        name = self.topic("load-connections", 6, 1)
        leaders = {p.leader for p in self.admin.list_topics(name, timeout=20).topics[name].partitions.values()}
        if len(leaders) > 1:
            raise SystemExit("connections: run it on one broker")
        host, _, port = self.bootstrap.partition(",")[0].rpartition(":")
        before = cpu_s(self.pids)
        out = subprocess.check_output([TOOLS / "connections", host, port, name, "6", "1000", "10", "100"], timeout=600)
        got: dict[str, Any] = json.loads(out)
        got["cpu_us_per_request"] = round((cpu_s(self.pids) - before) / (got["requests_s"] * 11) * 1e6, 1)
        return got | {"rss_mb": rss_mb(self.pids)}

    def run(self, row: str) -> dict[str, object]:
        return self.small(row) if row.startswith(("latency", "connections", "beside")) else self.bulk(row)

    def bulk(self, row: str) -> dict[str, object]:
        match row:
            case "produce-1k":
                return self.produce(1000, 1_000_000, 1, "1")
            case "produce-100":
                return self.produce(100, 10_000_000, 1, "1", "queue.buffering.max.messages=2000000")
            case "produce-16k":
                return self.produce(1000, 1_000_000, 1, "1", "batch.size=16384", "queue.buffering.max.messages=1000000")
            case "produce-rf3":
                return self.produce(1000, 1_000_000, 3, "-1")
            case "produce-16k-rf3":
                return self.produce(1000, 500_000, 3, "-1", "batch.size=16384", "queue.buffering.max.messages=1000000")
            case "consume-1k":
                return self.consume(1, "1")
            case "consume-rf3":
                return self.consume(3, "-1")
        raise SystemExit(f"no row {row!r}")

    def small(self, row: str) -> dict[str, object]:
        match row:
            case "latency":
                return self.latency(1, "1")
            case "latency-rf3":
                return self.latency(3, "all")
            case "connections":
                return self.connections()
            case "connections-beside":
                return self.connections_beside()
            case "beside-1":
                return self.beside(1, 0, 1)
            case "beside-2":
                return self.beside(2, 0, 1)
            case "beside-consume":
                return self.beside(0, 2, 1)
            case "beside-rf3":
                return self.beside(1, 0, 3)
        raise SystemExit(f"no row {row!r}")


def compare(a: str, b: str) -> None:
    def medians(path: str) -> dict[tuple[str, str], float]:
        values: dict[tuple[str, str], list[float]] = {}
        for line in Path(path).read_text().splitlines():
            row = json.loads(line)
            for key, value in row.items():
                if isinstance(value, list):
                    value = sum(value)
                if isinstance(value, int | float):
                    values.setdefault((row["row"], key), []).append(value)
        return {key: statistics.median(v) for key, v in values.items()}

    left, right = medians(a), medians(b)
    print(f"{'row':<14} {'figure':<20} {Path(a).stem:>14} {Path(b).stem:>14} {'ratio':>8}")
    for key in left:
        if key in right:
            ratio = right[key] / left[key] if left[key] else float("nan")
            print(f"{key[0]:<14} {key[1]:<20} {left[key]:>14,.2f} {right[key]:>14,.2f} {ratio:>8.2f}")


def main() -> None:
    if sys.argv[1:2] == ["--compare"]:
        return compare(*sys.argv[2:])
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    bootstrap, name, pids, *rows = sys.argv[1:]
    touch_memory()
    bench = Bench(bootstrap, [int(p) for p in pids.split(",")])
    for row in rows or ["produce-1k", "produce-100", "produce-16k", "consume-1k", "latency", "connections"]:
        line = json.dumps({"row": row, **bench.run(row)})
        print(line, flush=True)
        with open(f"{name}.jsonl", "a") as out:
            out.write(line + "\n")


if __name__ == "__main__":
    main()
