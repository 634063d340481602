"""What metrics cost: the produce path beside another tree's, and a scrape of many partitions.

    python -m tests.benchmarks.bench_metrics [--against DIR] [--partitions 10000] [--rounds 200]

``--against`` is a checkout from before the counters: both trees serve the same requests in turn, each in a process of its own,
from one process' memory into logs on /dev/shm. CPU time, the mean of the quickest quarter of the rounds, for the machine has other users.
"""

import argparse
import asyncio
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers import produce
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.routing import RouteTable
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.headers import encode_request_header
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.records import Record, encode_batch
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.host import Host
from ottla.runtime.launch import run
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers

TOPIC, TOPIC_ID = "flights", b"F" * 16
VERSION, IN_FLIGHT, READS = 9, 50, 40
SETTINGS = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.quorum.voters": "9@controller:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092",
}


class Logs:
    """`LogStore` on one directory."""

    def __init__(self, host: Host, directory: str) -> None:
        MetaProperties("c", 1, bytes(15) + b"\x01").write(host.disk, directory)
        settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
        self.manager = LogManager(host.disk, [directory], LogConfig(), settings, Random(1))
        self.manager.open_all(host.clock.wall_ms())

    def get_or_create(self, partition: Any, config: Any, topic_id: bytes, *_: Any, **__: Any) -> Any:
        return self.manager.get_or_create(partition, config, topic_id, now_ms=0)


class Sink(asyncio.Transport):
    """Takes what is written and forgets it."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def write(self, data: Any) -> None: ...
    def writelines(self, list_of_data: Any) -> None: ...
    def is_closing(self) -> bool:
        return False


def broker(directory: str, partitions: int) -> tuple[ReplicaManager, Logs, Connection]:
    """One that leads all partitions, and a connection to it."""
    host, loop = Host.real(), asyncio.get_running_loop()
    config, timers, logs = ServerConfig(SETTINGS), LoopTimers(loop), Logs(host, directory)
    nobody: Any = None
    store: Any = logs
    replicas = ReplicaManager(config, store, timers, nobody, host.rng, WakeQueue(loop), host.sync_later, nobody)
    delta, image = MetadataDelta(), MetadataImage()
    image.apply(pb.MetadataRecord(topic=pb.Topic(name=TOPIC, topic_id=TOPIC_ID)), delta)
    for index in range(partitions):
        partition = pb.Partition(
            topic_id=TOPIC_ID, partition_id=index, replicas=[1], isr=[1], leader=1, leader_epoch=1,
            directories=[bytes(15) + b"\x01"],
        )  # fmt: skip
        image.apply(pb.MetadataRecord(partition=partition), delta)
    replicas.publish(delta, image)
    parts = {"config": config, "host": host, "timers": timers, "image": image, "replicas": replicas}
    context: Any = SimpleNamespace(**parts, verifications=nobody)
    connection = Connection(RouteTable(produce.routes(context)), ReceivePool(), ConnectionLimits())
    connection.connection_made(Sink())
    return replicas, logs, connection


def frames(size: int) -> bytes:
    """As many produce requests as a read may bring."""
    batch = bytes(encode_batch([Record(0, int(time.time() * 1000), None, bytes(size), ())]))
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    body = b"".join(map(bytes, encoder(ProduceRequest, VERSION)(ProduceRequest(None, 1, 1000, [data]))))
    payload = encode_request_header(0, VERSION, 1, "rdkafka") + body
    return (struct.pack(">i", len(payload)) + payload) * IN_FLIGHT


def feed(connection: Connection, data: bytes) -> None:
    view = memoryview(data)
    while view:
        space = connection.get_buffer(-1)
        taken = min(len(space), len(view))
        space[:taken] = view[:taken]
        connection.buffer_updated(taken)
        view = view[taken:]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def worker(directory: str) -> None:
    """For each line of standard input, one round: microseconds of CPU a request."""
    _, logs, connection = broker(directory, 1)
    for log in logs.manager.logs.values():
        log.sync_names()  # before that a new log's records count only once they are on stable storage
    data = frames(100)
    for _ in sys.stdin:
        began = time.process_time()
        for _ in range(READS):
            feed(connection, data)
            await asyncio.sleep(0)  # answers leave at the end of the loop's turn
        say(f"{(time.process_time() - began) / (READS * IN_FLIGHT) * 1e6:.4f}")


class Worker:
    """A tree's broker in a process of its own."""

    def __init__(self, tree: Path, directory: str) -> None:
        os.makedirs(directory)
        command = [sys.executable, __file__, "--worker", directory]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.rounds: list[float] = []

    def go(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.rounds.append(float(self.process.stdout.readline()))

    def end(self) -> float:
        self.process.communicate()
        quickest = sorted(self.rounds)[: len(self.rounds) // 4 or 1]
        return sum(quickest) / len(quickest)


def compare(against: Path, rounds: int, home: str) -> None:
    here = Path(__file__).resolve().parents[2]
    before, after = Worker(against, f"{home}/before"), Worker(here, f"{home}/after")
    for number in range(rounds):
        for each in (before, after) if number % 2 else (after, before):
            each.go()
    was, now = before.end(), after.end()
    say(f"produce, 100 B, {IN_FLIGHT} a read: {was:.2f} us before, {now:.2f} us after ({100 * (now / was - 1):+.1f} %)")


async def scrape(directory: str, partitions: int) -> None:
    """The loop's time, its longest slice, and the thread's time for the text."""
    from ottla.broker.metrics.render import render_text
    from ottla.broker.replication import metrics as replication
    from ottla.log import metrics as log
    from ottla.runtime.metrics import Registry

    replicas, logs, _ = broker(directory, partitions)
    host, registry = Host.real(), Registry()
    registry.add(replication.METRICS, lambda: replication.look(replicas, lambda: 0, 900_000))
    registry.add(log.METRICS, lambda: log.look(logs.manager, None, host.sync_later, host.clock.wall_ms, 0))
    best: list[float] = []
    for _ in range(10):
        slices, reading = [], registry.gather()
        while True:
            began = time.thread_time()
            try:
                next(reading)
            except StopIteration as done:
                families = done.value
                break
            finally:
                slices.append(time.thread_time() - began)
        if not best or sum(slices) < sum(best):
            best = slices
    render_text(families)  # imports the library
    began = time.thread_time()
    body = render_text(families)
    took = time.thread_time() - began
    say(
        f"scrape, {partitions:,} partitions: {sum(best) * 1e3:.1f} ms of the loop in {len(best)} slices, the longest "
        f"{max(best) * 1e3:.2f} ms; text on a thread {took * 1e3:.1f} ms, {len(body):,} bytes"
    )


async def first_count(partitions: int) -> None:
    """A controller's first scrape, which counts the cluster's partitions."""
    from ottla.quorum.controller.partition_counts import PartitionCounts
    from ottla.quorum.metadata.publisher import MetadataLoader
    from ottla.testing.quorum.memory import MemoryStore

    loader, delta = MetadataLoader(MemoryStore()), MetadataDelta()
    for number in range(partitions // 100):
        topic_id = number.to_bytes(16, "big")
        loader.image.apply(pb.MetadataRecord(topic=pb.Topic(name=f"t{number}", topic_id=topic_id)), delta)
        for index in range(100):
            partition = pb.Partition(topic_id=topic_id, partition_id=index, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1)
            loader.image.apply(pb.MetadataRecord(partition=partition), delta)
    slices, counting = [], PartitionCounts(loader).built()
    ended = False
    while not ended:
        began = time.thread_time()
        ended = next(counting, loader) is loader
        slices.append(time.thread_time() - began)
    say(
        f"a controller's first scrape, {partitions:,} partitions of the cluster: {sum(slices) * 1e3:.0f} ms of the loop "
        f"in {len(slices)} slices, the longest {max(slices) * 1e3:.2f} ms; later ones: none"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--worker")
    words = parser.parse_args()
    if words.worker:
        run(lambda: worker(words.worker))
        return
    home = tempfile.mkdtemp(prefix="ottla-metrics-", dir="/dev/shm")
    try:
        if words.against:
            compare(words.against, words.rounds, home)
        os.makedirs(f"{home}/many")
        run(lambda: scrape(f"{home}/many", words.partitions))
        run(lambda: first_count(100_000))
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
