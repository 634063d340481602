"""How long the metadata of a large cluster holds an event loop, and how long what concerns most of it takes.

    python -m tests.benchmarks.bench_large_cluster [--topics 1000,10000] [--partitions 100] [--home DIR]

For each number of topics, in processes of their own, on a store made by bench_metadata_restart.py (twelve brokers, three replicas a
partition). A tick of the loop is planned every millisecond. "stall": the longest time between two; "of CPU": the most CPU time of the
loop's thread between two, which other work on the machine does not change. "CPU s" is the loop's thread, too.

fence, shut down, unregister: a controller without the broker role (gRPC, LMDB and fsync as in production) and a broker with a quarter
of the partitions, from the request to the last partition's new leader, while a topic is configured every 20 ms; "command": the
longest of those. install: a snapshot takes the place of an empty image, and then of an equal one, with a broker's replica manager that has
none of the partitions its own. introduce: that replica manager is told of everything. snapshot: a copy is taken on a thread. metadata: a
broker is asked for all topics, the first time and once more; a page: DescribeTopicPartitions of 2,000 partitions; settings: a
thousand commits of a topic's settings, as a broker takes them.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers import describe_topic_partitions, metadata
from ottla.broker.links.leader import leaders
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server import Server
from ottla.broker.topic_config import LogConfigs
from ottla.broker.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from ottla.broker.wire.messages.metadata_request import MetadataRequest
from ottla.proto import controller_pb2 as rpc
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.snapshots.image_copies import ImageSnapshots
from ottla.runtime.host import Host
from ottla.runtime.launch import run
from ottla.runtime.lmdb_store import LmdbStore
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.timers import LoopTimers
from ottla.runtime.turns import on_thread, over_turns
from tests.benchmarks.bench_large_topic import Stall, ask, configuration
from tests.benchmarks.bench_metadata_restart import BROKERS, build

HEADER = f"{'':<12} {'partitions':>10} {'seconds':>8} {'CPU s':>6} {'stall ms':>9} {'of CPU':>7} {'command ms':>10}"
READ_EVERYTHING = 2**62
NODE = {
    "process.roles": "broker",
    "node.id": "100",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


class Row:
    """Measures one operation on the running loop."""

    def __init__(self, name: str, partitions: int) -> None:
        self._name, self._partitions = name, partitions
        self.command_ms = 0.0
        self.is_over = False

    async def __aenter__(self) -> "Row":
        self._stall = Stall(asyncio.get_running_loop())
        await asyncio.sleep(0.05)
        self._stall.reset()
        self._began, self._began_cpu = time.perf_counter(), time.thread_time()
        return self

    async def __aexit__(self, *error: object) -> None:
        seconds, cpu = time.perf_counter() - self._began, time.thread_time() - self._began_cpu
        await asyncio.sleep(0.01)
        command = f"{self.command_ms:>10.1f}" if self.command_ms else ""
        print(
            f"{self._name:<12} {self._partitions:>10,} {seconds:>8.2f} {cpu:>6.2f} {self._stall.longest_ms:>9.1f} "
            f"{self._stall.longest_cpu_ms:>7.1f} {command}",
            flush=True,
        )


# --- the controller ---------------------------------------------------------------------------------------------------


def prepare(home: Path, image: str) -> ServerConfig:
    """A formatted controller that has the image, and the snapshot that the metadata log begins after."""
    config = configuration(home)
    directory = home / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    host = Host.real()
    files = SnapshotFiles(host.disk, str(directory))
    store = host.open_store(image)
    snapshot = ImageSnapshots(store, host.open_store).copy_to(files.taking_path)
    assert snapshot is not None
    shutil.copyfile(files.taking_path, directory / "image")
    files.freeze_taken(snapshot, files.measure())
    store.close()
    return config


@contextlib.asynccontextmanager
async def controller(home: Path, image: str) -> AsyncIterator[tuple[Server, MetadataLoader]]:
    server = Server(prepare(home, image), Host.real(), GrpcTransport())
    await server.start()
    try:
        while server.controller is None or not server.controller.is_active:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)  # it counts its partitions
        yield server, server.controller._loader
    finally:
        await server.stop()


async def beat(
    server: Server, broker_id: int, *, want_fence: bool = False, want_shut_down: bool = False
) -> rpc.BrokerHeartbeatResponse:
    request = rpc.BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker_id,
        current_metadata_offset=READ_EVERYTHING,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
    )
    return (await ask(server, broker_heartbeat=request)).broker_heartbeat


async def configure(server: Server, topic: str, row: Row) -> None:
    """Until what the row measures is over."""
    number = 0
    while not row.is_over:
        number += 1
        change = rpc.IncrementalAlterConfigsRequest.Change(name="retention.ms", value=str(10**6 + number), operation=0)
        resource = rpc.IncrementalAlterConfigsRequest.Resource(resource_type=2, resource_name=topic, changes=[change])
        began = time.perf_counter()
        await ask(server, incremental_alter_configs=rpc.IncrementalAlterConfigsRequest(resources=[resource]))
        row.command_ms = max(row.command_ms, (time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.02)


async def fencing(home: Path, image: str, partitions: int) -> None:
    async with controller(home, image) as (server, loader):
        topic = next(iter(loader.image.topics_by_name))

        async def fence() -> None:
            await beat(server, 1, want_fence=True)

        async def shut_down() -> None:
            for broker_id in range(BROKERS):
                if broker_id != 1:
                    await beat(server, broker_id)
            while not (await beat(server, 2, want_shut_down=True)).should_shut_down:  # noqa: ASYNC110 - as a broker asks
                await asyncio.sleep(0.01)

        async def unregister() -> None:
            await ask(server, unregister_broker=rpc.UnregisterBrokerRequest(broker_id=3))

        for work in (fence, shut_down, unregister):
            async with Row(work.__name__.replace("_", " "), partitions) as row:
                others = asyncio.get_running_loop().create_task(configure(server, topic, row))
                await work()
                row.is_over = True
                await others
        for broker_id in (1, 2, 3):
            assert not any(
                broker_id == each.leader or (broker_id in each.isr and len(each.isr) > 1)  # the last one stays
                for known in loader.image.topics_by_id.values()
                for each in known.partitions.values()
            ), f"broker {broker_id} has part in something still"


# --- a broker ---------------------------------------------------------------------------------------------------------


def replica_manager() -> ReplicaManager:
    """Of a broker that is assigned nothing."""
    nothing: Any = SimpleNamespace(call_back=lambda *args: None)
    loop = asyncio.get_running_loop()
    config, timers, wakes = ServerConfig(NODE, "benchmark"), LoopTimers(loop), WakeQueue(loop)
    return ReplicaManager(config, nothing, timers, nothing, Random(1), wakes, SyncLater(), leaders(config, timers))


async def installing(home: Path, image: str, partitions: int) -> None:
    os.makedirs(home)
    loader = MetadataLoader(LmdbStore(f"{home}/image"), LmdbStore)
    await over_turns(loader.introduce(replica_manager()))
    for name in ("install", "install again"):
        shutil.copyfile(image, f"{home}/received")
        async with Row(name, partitions):
            await loader.on_snapshot(f"{home}/received", READ_EVERYTHING, 1)
    async with Row("introduce", partitions):
        await over_turns(loader.introduce(replica_manager()))
    async with Row("snapshot", partitions):
        await on_thread(lambda: loader._store.copy_to(f"{home}/taken"))
    await asking(loader.image, partitions)
    loader.close()


async def asking(image: MetadataImage, partitions: int) -> None:
    """Of a broker that was just started, for all topics; a page of them; and what commits of a topic's settings cost."""
    context: Any = SimpleNamespace(
        image=image, config=ServerConfig(NODE, "benchmark"), cluster_id="c", node_id=1, controller=None, timers=None
    )
    handler = metadata.MetadataHandler(context)
    everything = MetadataRequest(topics=None)
    for name in ("metadata", "once more"):
        async with Row(name, partitions):
            handler.encoded(everything, 12, "PLAINTEXT")
    page = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000)
    async with Row("a page", partitions):
        describe_topic_partitions._response(context, page, {}, "PLAINTEXT")
    configs = LogConfigs(context.config)
    async with Row("settings", 1000):
        for number in range(1000):
            configs.of({"retention.ms": str(number)})


# --- all of it --------------------------------------------------------------------------------------------------------

PARTS = {"fencing": fencing, "installing": installing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", default="1000,10000")
    parser.add_argument("--partitions", type=int, default=100, help="of each topic")
    parser.add_argument("--home", help="keep the stores here and use them again")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    home = Path(options.home or tempfile.mkdtemp(prefix="ottla-bench-"))
    if options.part:
        name, image, partitions = json.loads(options.part)
        run(lambda: PARTS[name](home / "node", image, partitions))
        return
    print(HEADER, flush=True)
    for topics in map(int, options.topics.split(",")):
        image = home / f"image-{topics}x{options.partitions}"
        if not image.exists():
            home.mkdir(parents=True, exist_ok=True)
            build(str(image), topics, options.partitions)
        for part in PARTS:
            shutil.rmtree(home / "node", ignore_errors=True)
            wanted = json.dumps([part, str(image), topics * options.partitions])
            subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.bench_large_cluster", "--home", str(home), "--part", wanted],
                check=True,
                env=os.environ,
            )
    shutil.rmtree(home / "node", ignore_errors=True)
    if not options.home:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
