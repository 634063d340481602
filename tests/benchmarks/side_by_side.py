"""Ottla and Apache Kafka under the same load, in one run, alternating; medians and ratios at the end.

    python tests/benchmarks/side_by_side.py [--rounds 3] [--rows produce-1k,latency-rf3] [--only ottla] [--out DIR]

Each round starts a fresh one-node cluster of each kind (a fresh three-node one for the rows that end in -rf3), runs the rows
of tests/peers/load/load.py on it and stops it. Run it on an otherwise idle machine; needs JDK 17, mvn, cmake, npm.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KAFKA = ROOT / "tests" / "peers" / "kafka" / "kafka"
LOAD = ROOT / "tests" / "peers" / "load"
BULK_AND_SMALL = ["produce-1k", "produce-100", "produce-16k", "consume-1k", "latency", "connections"]
BESIDE_BULK = ["beside-1", "beside-2", "beside-consume", "connections-beside"]
ONE_NODE = BULK_AND_SMALL + BESIDE_BULK
THREE_NODES = ["produce-rf3", "produce-16k-rf3", "consume-rf3", "latency-rf3", "beside-rf3"]
PORT = {"kafka": 19092, "ottla": 29092}  # below those that the system gives to clients


@contextmanager
def kafka(nodes: int) -> Iterator[list[int]]:
    """Apache Kafka's processes, up; stopped and their data removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="bench-kafka-"))
    subprocess.run([KAFKA, "up", home, str(nodes), str(PORT["kafka"])], check=True, stdout=subprocess.DEVNULL)
    pids = [int((home / f"pid{number}").read_text()) for number in range(1, nodes + 1)]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def ottla(nodes: int) -> Iterator[list[int]]:
    """Ottla's processes, up; stopped and their data removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="bench-ottla-"))
    ready = home / "ready"
    command = [sys.executable, "-m", "ottla.cli.main", "up", "--nodes", str(nodes), "--dir", str(home / "cluster")]
    cluster = subprocess.Popen(
        [*command, "--port", str(PORT["ottla"]), "--ready-file", str(ready)], stdout=subprocess.DEVNULL
    )
    try:
        while not ready.exists():
            if cluster.poll() is not None:
                raise SystemExit("ottla up failed")
            time.sleep(0.01)
        yield [int((home / "cluster" / f"node-{number}" / "pid").read_text()) for number in range(1, nodes + 1)]
    finally:
        cluster.terminate()
        cluster.wait(60)
        shutil.rmtree(home, ignore_errors=True)


def run_rows(kind: str, nodes: int, rows: list[str], out: Path) -> None:
    start = {"kafka": kafka, "ottla": ottla}[kind]
    bootstrap = ",".join(f"localhost:{PORT[kind] + number}" for number in range(nodes))
    with start(nodes) as pids:
        command = [sys.executable, "-m", "tests.peers.load.load", bootstrap, str(out.absolute() / kind)]
        subprocess.run([*command, ",".join(map(str, pids)), *rows], check=True, cwd=ROOT)


def medians(path: Path) -> dict[tuple[str, str], float]:
    """The median of each figure of each row."""
    values: dict[tuple[str, str], list[float]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for name, value in row.items():
            number = sum(value) if isinstance(value, list) else value
            if isinstance(number, int | float):
                values.setdefault((row["row"], name), []).append(number)
    return {key: statistics.median(found) for key, found in values.items()}


def report(out: Path) -> None:
    """A table in Markdown, as docs/benchmarks.md has it."""
    left, right = (medians(out / f"{kind}.jsonl") for kind in ("kafka", "ottla"))
    print("| row | figure | Apache Kafka | Ottla | Ottla / Kafka |\n|---|---|---:|---:|---:|")
    for (row, name), value in left.items():
        if (row, name) in right:
            mine = right[row, name]
            print(f"| {row} | {name} | {value:,.2f} | {mine:,.2f} | {mine / value if value else float('nan'):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default=",".join(ONE_NODE + THREE_NODES))
    parser.add_argument("--only", choices=["kafka", "ottla"])
    parser.add_argument("--out", type=Path, default=Path(".cache/bench"))
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    subprocess.run([KAFKA, "install"], check=True)
    subprocess.run([LOAD / "build"], check=True)
    wanted = args.rows.split(",")
    for _ in range(args.rounds):
        for kind in [args.only] if args.only else ["kafka", "ottla"]:
            for nodes, known in ((1, ONE_NODE), (3, THREE_NODES)):
                rows = [row for row in known if row in wanted]
                if rows:
                    run_rows(kind, nodes, rows, args.out)
    if not args.only:
        report(args.out)


if __name__ == "__main__":
    main()
