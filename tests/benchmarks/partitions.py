"""10,000 partitions of three replicas on three nodes, Apache Kafka and Ottla alternating; then 100,000 on one node of Ottla.

    python -m tests.benchmarks.partitions [--rounds 1] [--kinds kafka,ottla] [--rows three,one] [--partitions 10000]

Topics of 1,000 partitions, made one after the other. Three nodes (`three`):

- made: from the first request until each node says that all replicas are in sync, each leader answers for its partitions
  (ListOffsets), and each node has all logs (DescribeLogDirs)
- idle: CPU of all nodes in cores, over 20 s that begin 10 s after that; memory of a node: resident, and its share (PSS)
- killed: kill -9 of a node that is not the active controller. From when it is fenced (a survivor's DescribeCluster) until no
  partition has it as leader and the new ones answer; beside it, from the kill. It is started again then, until it is in sync everywhere
- restart: SIGTERM to all until they ended; and from the start of all until all is as after `made`

One node (`one`, Ottla only): ten times as many. The same but for the kill, and then kill -9 and start again.

"longest wait": of a small client (ApiVersions every 10 ms, a connection a node) meanwhile. Lines go to standard error as they
come, the table in Markdown to standard output.
"""

import argparse
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.benchmarks.clusters import KINDS, Cluster, cpu_s, running
from tests.benchmarks.partition_checks import Checks
from tests.benchmarks.wire_client import RequestFailed, WireClient

SETTLE_S = 10
IDLE_S = 20
PING_S = 0.01
TOPIC_PARTITIONS = 1_000
GOALS = {
    ("three", "made s"): "<= 0.7 x Kafka's",
    ("three", "idle cores"): "<= 0.03",
    ("three", "MB a node, resident"): "<= 150",
    ("three", "start to in sync s"): "<= 8",
    ("three", "fenced to moved s"): "<= 1",
    ("one", "made s"): "<= 60",
    ("one", "start to ready s"): "<= 15",
    ("one", "KB a partition"): "<= 3",
    ("one", "idle cores"): "<= 0.02",
}

Figures = dict[str, float]


class Pings:
    """Small clients, one a node: the longest time that one of them waited, since it was asked last."""

    def __init__(self, cluster: Cluster, nodes: list[int]) -> None:
        self._longest = dict.fromkeys(nodes, 0.0)
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(node, cluster.address(node))) for node in nodes]
        for thread in self._threads:
            thread.start()

    def _run(self, node: int, address: tuple[str, int]) -> None:
        while not self._stopped.wait(PING_S):
            with suppress(OSError), WireClient(address, 30) as client:
                while not self._stopped.wait(PING_S):
                    began = time.monotonic()
                    client.versions()
                    self._longest[node] = max(self._longest[node], time.monotonic() - began)

    def longest_ms(self) -> float:
        longest = max(self._longest.values())
        self._longest = dict.fromkeys(self._longest, 0.0)
        return longest * 1000

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def pinging(figures: Figures, what: str, cluster: Cluster, nodes: list[int]) -> Iterator[None]:
    pings = Pings(cluster, nodes)
    try:
        yield
    finally:
        pings.stop()
        figures[f"{what}: longest wait ms"] = pings.longest_ms()


def memory_mb(pid: int) -> tuple[float, float]:
    """(resident, its share of what is shared)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return found["Rss"] / 1024, found["Pss"] / 1024


def timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def note(kind: str, figures: Figures, name: str, value: float) -> None:
    figures[name] = value
    print(f"{kind}: {name} {value:.3f}", file=sys.stderr, flush=True)


def create(cluster: Cluster, topics: dict[str, int], replicas: int) -> None:
    with WireClient(cluster.address(1)) as client:
        for name, partitions in topics.items():
            client.create_topic(name, partitions, replicas)


def idle(kind: str, cluster: Cluster, nodes: list[int], figures: Figures) -> None:
    pids = [cluster.pid(node) for node in nodes]
    time.sleep(SETTLE_S)
    before = cpu_s(pids)
    time.sleep(IDLE_S)
    note(kind, figures, "idle cores", (cpu_s(pids) - before) / IDLE_S)


def stop_all(cluster: Cluster, nodes: list[int], number: signal.Signals) -> None:
    for node in nodes:
        os.kill(cluster.pid(node), number)
    while any(cluster.is_alive(node) for node in nodes):
        time.sleep(0.005)


def start_all(cluster: Cluster, nodes: list[int]) -> None:
    threads = [threading.Thread(target=cluster.start, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def three_nodes(kind: str, partitions: int) -> Figures:
    nodes, figures = [1, 2, 3], Figures()
    each = min(TOPIC_PARTITIONS, partitions)
    topics = {f"orders-{number:03d}": each for number in range(partitions // each)}
    with running(kind, len(nodes)) as cluster:
        checks = Checks(cluster, nodes, topics)
        create(cluster, {"first": 1}, 3)  # a JVM's first topic is its slowest

        def make() -> None:
            create(cluster, topics, 3)
            checks.wait_whole()

        with pinging(figures, "made", cluster, nodes):
            note(kind, figures, "made s", timed(make))
        idle(kind, cluster, nodes, figures)
        memory = [memory_mb(cluster.pid(node)) for node in nodes]
        note(kind, figures, "MB a node, resident", statistics.mean(each[0] for each in memory))
        note(kind, figures, "MB a node, its share", statistics.mean(each[1] for each in memory))
        kill_one(kind, cluster, checks, figures)
        note(kind, figures, "stop s", timed(lambda: stop_all(cluster, nodes, signal.SIGTERM)))

        def restart() -> None:
            start_all(cluster, nodes)
            checks.wait_whole()

        note(kind, figures, "start to in sync s", timed(restart))
    return figures


def kill_one(kind: str, cluster: Cluster, checks: Checks, figures: Figures) -> None:
    controller = checks.active_controller()
    victim = next(node for node in checks.nodes if node != controller)
    survivors = [node for node in checks.nodes if node != victim]
    with pinging(figures, "killed", cluster, survivors):
        killed = time.monotonic()
        os.kill(cluster.pid(victim), signal.SIGKILL)
        fenced = checks.wait_fenced(controller, victim)
        checks.wait_moved(survivors, victim)
        moved = time.monotonic()
    note(kind, figures, "killed to fenced s", fenced - killed)
    note(kind, figures, "fenced to moved s", moved - fenced)

    def back() -> None:
        cluster.start(victim)
        checks.wait_whole()

    with pinging(figures, "comes back", cluster, survivors):
        note(kind, figures, "killed node: start to in sync s", timed(back))


def one_node(kind: str, partitions: int) -> Figures:
    nodes, figures = [1], Figures()
    each = min(TOPIC_PARTITIONS, partitions)
    topics = {f"orders-{number:03d}": each for number in range(partitions // each)}
    with running(kind, 1) as cluster:
        checks = Checks(cluster, nodes, topics)
        create(cluster, {"first": 1}, 1)
        before = memory_mb(cluster.pid(1))

        def make() -> None:
            create(cluster, topics, 1)
            checks.wait_whole()

        with pinging(figures, "made", cluster, nodes):
            note(kind, figures, "made s", timed(make))
        idle(kind, cluster, nodes, figures)
        note_memory(kind, cluster, figures, "", before, partitions)
        for number in (signal.SIGTERM, signal.SIGKILL):
            note(kind, figures, f"{number.name}: stop s", timed(lambda number=number: stop_all(cluster, nodes, number)))  # type: ignore[misc]  # bound now
            took = timed(lambda: cluster.start(1))
            note(
                kind,
                figures,
                "start to ready s" if number == signal.SIGTERM else "after kill -9: start to ready s",
                took,
            )
            checks.wait_whole()
            note_memory(kind, cluster, figures, f", after {number.name}", before, partitions)
    return figures


def note_memory(
    kind: str, cluster: Cluster, figures: Figures, when: str, before: tuple[float, float], partitions: int
) -> None:
    resident, share = memory_mb(cluster.pid(1))
    note(kind, figures, f"MB resident{when}", resident)
    note(kind, figures, f"KB a partition{when}", (share - before[1]) * 1024 / partitions)


def report(found: dict[tuple[str, str], list[Figures]]) -> None:
    print("| row | figure | Apache Kafka | Ottla | Ottla / Kafka | goal |\n|---|---|---:|---:|---:|---|")
    for row in ("three", "one"):
        names = dict.fromkeys(
            name for key, rounds in found.items() if key[1] == row for each in rounds for name in each
        )
        for name in names:
            kafka, ottla = (_median(found.get((kind, row), []), name) for kind in ("kafka", "ottla"))
            ratio = f"{ottla / kafka:.2f}" if kafka and ottla is not None else ""
            print(f"| {row} | {name} | {_text(kafka)} | {_text(ottla)} | {ratio} | {GOALS.get((row, name), '')} |")


def _median(rounds: list[Figures], name: str) -> float | None:
    values = [each[name] for each in rounds if name in each]
    return statistics.median(values) if values else None


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(reversed(KINDS)))
    parser.add_argument("--rows", default="three,one")
    parser.add_argument("--partitions", type=int, default=10_000, help="ten times as many on one node")
    args = parser.parse_args()
    found: dict[tuple[str, str], list[Figures]] = {}
    rows, kinds = args.rows.split(","), args.kinds.split(",")
    try:
        for _ in range(args.rounds):
            for kind in kinds if "three" in rows else []:
                found.setdefault((kind, "three"), []).append(three_nodes(kind, args.partitions))
            if "one" in rows and "ottla" in kinds:
                found.setdefault(("ottla", "one"), []).append(one_node("ottla", 10 * args.partitions))
    except (RequestFailed, OSError) as error:
        raise SystemExit(f"gave up: {error}") from error
    finally:
        report(found)


if __name__ == "__main__":
    main()
