"""Offset commits, heartbeats, joins and transactions on Ottla and on Apache Kafka in one run, beside the goals.

    python -m tests.benchmarks.groups_side_by_side [--runs 6] [--seconds 5] [--parts commit,join,transaction] [--only ottla]

One node of each, both up all the while; runs of tests/peers/load/groups.py alternate between them. The first two of each warm
it up and do not count. Both coordinate in eight partitions, and a group's first rebalance waits for nobody. Needs JDK 17, mvn.
"""

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from tests.benchmarks.clusters import KINDS, ROOT, running

WARMING_RUNS = 2
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "8"}
"""What tests/peers/kafka/kafka starts Apache Kafka with."""
GOALS = {
    ("commit", "per_s"): ">= 0.6",
    ("commit", "cpu_us"): "<= 1.2",
    ("join", "ms"): "<= 1.0",
    ("heartbeat", "per_s"): ">= 0.5",
    ("heartbeat", "cpu_us"): "<= 1.0",
    ("transaction", "per_s"): ">= 2.0",
    ("transaction_8", "per_s"): ">= 1.0",
    ("transaction_8", "cpu_us"): "<= 0.6",
}

Run = dict[str, Any]


def run_once(address: tuple[str, int], pid: int, args: argparse.Namespace) -> Run:
    tool = [sys.executable, "-m", "tests.peers.load.groups", f"{address[0]}:{address[1]}", str(pid)]
    more = ["--seconds", str(args.seconds), "--parts", args.parts, "--connections", str(args.connections)]
    done = subprocess.run([*tool, *more], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    figures: Run = json.loads(done.stdout)
    return figures


def values(runs: list[Run], part: str, name: str) -> list[float]:
    return [run[part][name] for run in runs if part in run]


def row(found: dict[str, list[Run]], part: str, name: str, goal: str) -> str:
    """Medians, with what each run gave behind them."""
    told, medians = [], []
    for runs in found.values():
        mine = values(runs, part, name)
        if not mine:
            return f"| {part} | {name} | | | | {goal} |"
        medians.append(statistics.median(mine))
        told.append(f"{medians[-1]:,.1f} ({', '.join(f'{each:,.0f}' for each in mine)})")
    ratio = f"{medians[0] / medians[1]:.2f}" if len(medians) == len(KINDS) and medians[1] else ""
    return f"| {part} | {name} | {' | '.join(told)} | {ratio} | {goal} |"


def report(found: dict[str, list[Run]]) -> None:
    """A table in Markdown, as docs/benchmarks.md has it."""
    print(f"| row | figure | {' | '.join(found)} | ratio | goal |")
    print("|---|---|" + "---:|" * (len(found) + 2))
    for (part, name), goal in GOALS.items():
        print(row(found, part, name, goal))
    for kind, runs in found.items():
        errors = {part: run[part]["errors"] for run in runs for part in run if run[part].get("errors")}
        if errors:
            print(f"{kind} answered with errors: {errors}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=6, help="of each, with the two that warm it up")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--parts", default="commit,join,transaction")
    parser.add_argument("--only", choices=KINDS)
    args = parser.parse_args()
    kinds = [args.only] if args.only else KINDS
    found: dict[str, list[Run]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        clusters = {kind: stack.enter_context(running(kind, 1, SETTINGS)) for kind in kinds}
        for number in range(args.runs):
            for kind, cluster in clusters.items():
                figures = run_once(cluster.address(1), cluster.pid(1), args)
                print(f"{kind} {number + 1}: {json.dumps(figures)}", file=sys.stderr)
                if number >= min(WARMING_RUNS, args.runs - 1):
                    found[kind].append(figures)
    report(found)


if __name__ == "__main__":
    main()
