"""What a commit and a heartbeat cost the broker without the sockets: from the bytes of 64 connections to their answers.

    python -m tests.benchmarks.bench_group_requests [--against DIR] [--rounds 200] [--partitions 8] [--profile commit]

Each turn of the loop brings one request of each connection, each for a group of its own, as `groups_side_by_side` does it at best.
``--against`` is another checkout: both trees serve the same requests in turn, each in a process of its own. CPU time in
microseconds a request, the mean of the quickest quarter of the rounds, for the machine has other users.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.coordinator.group_coordinator import GroupCoordinator
from ottla.broker.coordinator.shard_host import Surroundings
from ottla.broker.handlers import group_offsets, groups
from ottla.broker.internal_topics import GROUPS
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.routing import RouteTable
from ottla.broker.network.turn import Turn
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.host import Host
from ottla.runtime.launch import run
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers
from tests.benchmarks.bench_metrics import SETTINGS, Logs, feed, say
from tests.peers.load.groups import HEARTBEAT, TOPIC, commit_request, frame, join_request, joined, text

CONNECTIONS, TURNS = 64, 20
KINDS = ("commit", "heartbeat")
TOPIC_ID, GROUPS_ID = b"F" * 16, b"G" * 16


class Answers(asyncio.Transport):
    """Keeps what was written last."""

    last = b""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def write(self, data: Any) -> None:
        self.last = bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.last = b"".join(list_of_data)

    def is_closing(self) -> bool:
        return False


class Bench:
    """A broker that coordinates all groups, and its connections."""

    def __init__(self, directory: str, partitions: int, *, listens: bool = True) -> None:
        """``listens``: whether the coordinator hears of its elections now, and not later."""
        host, loop = Host.real(), asyncio.get_running_loop()
        config = ServerConfig({**SETTINGS, "group.initial.rebalance.delay.ms": "0"})
        timers, nobody = LoopTimers(loop), None
        self.logs = logs = Logs(host, directory)
        self._image = image = MetadataImage()
        others: Any = nobody
        store: Any = logs
        self.replicas = replicas = ReplicaManager(
            config, store, timers, others, host.rng, WakeQueue(loop), host.sync_later, others
        )
        around = Surroundings(timers, host.clock, host.rng, others, 5_000)
        self.around = around
        self.coordinator = coordinator = GroupCoordinator(config, image, around)
        if listens:
            replicas.listen(GROUPS, coordinator)
        self._add({TOPIC: (TOPIC_ID, 1), GROUPS: (GROUPS_ID, partitions)})
        context: Any = SimpleNamespace(config=config, host=host, timers=timers, image=image, groups=coordinator)
        table = RouteTable([*groups.routes(context), *group_offsets.routes(context)])
        pool, turn = ReceivePool(), Turn()
        self.answers = [Answers() for _ in range(CONNECTIONS)]
        self.connections = [Connection(table, pool, ConnectionLimits(), turn=turn) for _ in self.answers]
        for connection, sink in zip(self.connections, self.answers, strict=True):
            connection.connection_made(sink)

    def add_topics(self, partitions: dict[str, int]) -> None:
        """Numbers of partitions by name; another node has them."""
        self._add({name: (name.encode().ljust(16, b"."), count) for name, count in partitions.items()}, node=2)

    def _add(self, topics: dict[str, tuple[bytes, int]], node: int = 1) -> None:
        delta = MetadataDelta()
        for name, (topic_id, count) in topics.items():
            self._image.apply(pb.MetadataRecord(topic=pb.Topic(name=name, topic_id=topic_id)), delta)
            for index in range(count):
                partition = pb.Partition(
                    topic_id=topic_id, partition_id=index, replicas=[node], isr=[node], leader=node, leader_epoch=1,
                    directories=[bytes(15) + b"\x01"],
                )  # fmt: skip
                self._image.apply(pb.MetadataRecord(partition=partition), delta)
        self.replicas.publish(delta, self._image)

    def forget_topic(self) -> None:
        """What is read is deleted."""
        delta = MetadataDelta()
        self._image.apply(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)), delta)
        self.coordinator.publish(delta, self._image)

    async def begin(self) -> None:
        """Returns when the shards are loaded, and their logs synced once."""
        for log in self.logs.manager.logs.values():
            log.sync_names()  # before that a new log's records count only once they are on stable storage
        for _ in range(10 * len(self.logs.manager.logs)):
            await asyncio.sleep(0)

    async def ask(self, requests: list[bytes], turns: int = 1) -> None:
        for _ in range(turns):
            for connection, request in zip(self.connections, requests, strict=True):
                feed(connection, request)
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # what the turn wrote is answered, and the answers leave

    async def heartbeats(self) -> list[bytes]:
        """Of groups that have one member each."""
        names = [f"group-{index}-member" for index in range(CONNECTIONS)]
        await self.ask([join_request(name) for name in names])
        await asyncio.sleep(0.02)
        beats = []
        for name, sink in zip(names, self.answers, strict=True):
            generation, member = joined(sink.last[8:])
            beats.append(frame(HEARTBEAT, 1, text(name) + struct.pack(">i", generation) + text(member)))
        return beats


async def worker(directory: str, partitions: int, profiled: str | None) -> None:
    """For each line of standard input, one round: microseconds of CPU a request, of each kind."""
    bench = Bench(directory, partitions)
    await bench.begin()
    requests = {"commit": [commit_request(f"group-{index}") for index in range(CONNECTIONS)]}
    requests["heartbeat"] = await bench.heartbeats()
    for kind, asked in requests.items():
        await bench.ask(asked, 3)
        errors = {sink.last[8 + 4 : 8 + 6] if kind == "heartbeat" else sink.last[-2:] for sink in bench.answers}
        assert errors == {b"\0\0"}, (kind, errors)
    if profiled:
        profile = cProfile.Profile()
        profile.enable()
        await bench.ask(requests[profiled], 50 * TURNS)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        return
    for _ in sys.stdin:
        costs = []
        for asked in requests.values():
            began = time.process_time()
            await bench.ask(asked, TURNS)
            costs.append((time.process_time() - began) / (TURNS * CONNECTIONS) * 1e6)
        say(" ".join(f"{cost:.4f}" for cost in costs))


class Worker:
    """A tree's broker in a process of its own."""

    def __init__(self, tree: Path, partitions: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="ottla-bench-", dir="/dev/shm")
        me = [sys.executable, __file__, "--worker", self.directory, "--partitions", str(partitions)]
        paths = os.pathsep.join([str(tree / "src"), str(Path(__file__).resolve().parents[2])])
        environment = {**os.environ, "PYTHONPATH": paths}
        self._process = subprocess.Popen(
            me, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=tree, text=True
        )
        self.costs: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def round(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        for kind, cost in zip(KINDS, self._process.stdout.readline().split(), strict=True):
            self.costs[kind].append(float(cost))

    def best(self, kind: str) -> float:
        quickest = sorted(self.costs[kind])[: max(1, len(self.costs[kind]) // 4)]
        return sum(quickest) / len(quickest)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self.directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--profile", choices=KINDS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker or args.profile:
        directory = args.worker or tempfile.mkdtemp(prefix="ottla-bench-", dir="/dev/shm")
        run(lambda: worker(directory, args.partitions, args.profile))
        return
    trees = [Path(__file__).resolve().parents[2], *([args.against] if args.against else [])]
    workers = [Worker(tree, args.partitions) for tree in trees]
    for _ in range(args.rounds):
        for each in workers:
            each.round()
    for kind in KINDS:
        say(
            f"{kind}: "
            + "; ".join(f"{tree.name} {each.best(kind):.1f} us" for tree, each in zip(trees, workers, strict=True))
        )
    for each in workers:
        each.end()


if __name__ == "__main__":
    main()
