"""What a compressed batch costs its broker: ``python tests/benchmarks/bench_compressed_produce.py [--against DIR] [--rounds 3]
[--codecs none,lz4]``.

One librdkafka producer, acks=1, one node, text that compresses two to one; each codec with records of 100 B and 1 KB. The broker's own
CPU for a million records, and what came through, in MB of records a second. ``--against`` is another checkout: its node and ours take
turns, and medians are shown.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from statistics import median

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SIZES = (100, 1000)
SECONDS = 2.0
HERE = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")


def values(size: int) -> list[bytes]:
    rng = Random(1)
    words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randrange(3, 9))) for _ in range(2_000)]
    return [b" ".join(rng.choices(words, k=size // 4))[:size] for _ in range(1_000)]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def produced(bootstrap: str, pid: int, codec: str, size: int) -> tuple[float, float]:
    """(CPU seconds of the broker for a million records, MB a second)."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 5, "compression.type": codec}
    producer = Producer({**settings, "queue.buffering.max.messages": 200_000})
    payload, count, before, start = values(size), 0, cpu_s(pid), time.monotonic()
    while time.monotonic() - start < SECONDS:
        for value in payload:
            try:
                producer.produce(f"bench-{codec}", value)
                count += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    elapsed = time.monotonic() - start
    return (cpu_s(pid) - before) / count * 1e6, count * size / elapsed / 1e6


def serve(codecs: list[str]) -> None:
    """One tree's turn, in a process that imports that tree; prints a line a row."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from ottla.testing.processes import ProcessCluster

    with ProcessCluster(1) as cluster:
        bootstrap, pid = cluster.bootstrap_servers, cluster.node(1).alive_pid()
        assert pid is not None
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(f"bench-{codec}", 1, 1) for codec in codecs]).values():
            future.result(60)
        time.sleep(1)
        for codec in codecs:
            for size in SIZES:
                print(codec, size, *produced(bootstrap, pid, codec, size), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=list(CODECS))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.serve:
        serve(words.codecs)
        return
    trees = {"before": words.against, "after": HERE} if words.against else {"now": HERE}
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for _ in range(words.rounds):
        for name, tree in trees.items():
            environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
            command = [sys.executable, __file__, "--serve", "--codecs", ",".join(words.codecs)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for line in done.stdout.splitlines():
                codec, size, cpu, rate = line.split()
                found.setdefault((codec, size, name), []).append((float(cpu), float(rate)))
    print(f"{'codec':8}{'size':>6}{'':>8}{'CPU s per million':>20}{'MB/s':>8}")
    for key, rows in found.items():
        medians = median(row[0] for row in rows), median(row[1] for row in rows)
        print("{:8}{:>6}{:>8}{:>20.3f}{:>8.1f}".format(*key, *medians))


if __name__ == "__main__":
    main()
