"""The longest stall of a controller's event loop while topics of many partitions are created and deleted.

    python tests/benchmarks/bench_large_topic.py [--partitions 10000] [--rounds 3] [--profile]

One controller without the broker role (gRPC, LMDB and fsync as in production), three brokers that exist only as
registrations. A tick of the loop is planned every millisecond; the longest time between two is the stall: so long would a
heartbeat, a vote or a fetch have waited. "of CPU": the most CPU time between two ticks, which other work on the machine does not
change. Beside it the wall time until the answer, that is, until everything is committed.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import shutil
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from ottla.broker.server import Server
from ottla.log.directories.checkpoints import MetaProperties
from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.features import supported_ranges
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.runtime.host import Host
from ottla.runtime.identifiers import id_to_text, random_id
from ottla.runtime.launch import run
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.server import ServerConfig
from ottla.testing.ports import free_ports

BROKERS = (11, 12, 13)
TICK_S = 0.001


class Stall:
    """The longest time between two ticks since `reset`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.longest_ms = self.longest_cpu_ms = 0.0
        self.over_20_ms = 0
        self._last, self._last_cpu = loop.time(), time.thread_time()
        self._tick()

    def _tick(self) -> None:
        now, cpu = self._loop.time(), time.thread_time()
        gap_ms = (now - self._last - TICK_S) * 1000
        self.longest_ms = max(self.longest_ms, gap_ms)
        self.longest_cpu_ms = max(self.longest_cpu_ms, (cpu - self._last_cpu) * 1000)
        self.over_20_ms += gap_ms > 20
        self._last, self._last_cpu = now, cpu
        self._loop.call_later(TICK_S, self._tick)

    def reset(self) -> None:
        self.longest_ms = self.longest_cpu_ms = 0.0
        self.over_20_ms = 0


def configuration(home: Path) -> ServerConfig:
    (port,) = free_ports(1)
    cluster_id = id_to_text(random_id(SystemRandom()))
    disk = RealDisk()
    disk.make_directories(str(home))
    MetaProperties(cluster_id, 1, random_id(SystemRandom())).write(disk, str(home))
    return ServerConfig(
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{port}",
            "log.dirs": str(home),
            "broker.session.timeout.ms": "600000",
        },
        "benchmark",
    )


async def ask(server: Server, **body: object) -> rpc.ControllerResponse:
    answer: asyncio.Future[rpc.ControllerResponse] = asyncio.get_running_loop().create_future()
    assert server.controller is not None
    server.controller.handle(rpc.ControllerRequest(origin="benchmark", **body), answer.set_result)  # type: ignore[arg-type]  # keywords of many types
    response = await answer
    assert response.error_code == 0, response
    return response


async def register_brokers(server: Server, cluster_id: str) -> None:
    for broker_id in BROKERS:
        registration = rpc.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=bytes([broker_id]) * 16,
            endpoints=[pb.Endpoint(name="PLAINTEXT", host="localhost", port=9092)],
            features=supported_ranges(),
            directories=[bytes([broker_id]) * 16],
        )
        epoch = (await ask(server, register_broker=registration)).register_broker.broker_epoch
        beat = rpc.BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=epoch)
        await ask(server, broker_heartbeat=beat)


async def main(partitions: int, rounds: int, profile: bool) -> None:
    home = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    config = configuration(home)
    server = Server(config, Host.real(), GrpcTransport())
    loop = asyncio.get_running_loop()
    try:
        await server.start()
        while server.controller is None or not server.controller.is_active:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        meta = MetaProperties.read(RealDisk(), str(home))
        assert meta is not None
        await register_brokers(server, meta.cluster_id)
        stall = Stall(loop)
        print(f"{'':<8} {'partitions':>10} {'stall ms':>9} {'of CPU':>7} {'> 20 ms':>8} {'total ms':>9}")
        for number in range(rounds):
            name = f"large-{number}"
            topic = rpc.CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=3)
            gone = rpc.DeleteTopicsRequest.Topic(name=name)
            for what, body in (
                ("create", {"create_topics": rpc.CreateTopicsRequest(topics=[topic])}),
                ("delete", {"delete_topics": rpc.DeleteTopicsRequest(topics=[gone])}),
            ):
                gc.collect()
                await asyncio.sleep(0.05)
                stall.reset()
                profiler = cProfile.Profile()
                if profile:
                    profiler.enable()
                began = loop.time()
                await ask(server, **body)
                total_ms = (loop.time() - began) * 1000
                await asyncio.sleep(0.05)
                if profile:
                    profiler.disable()
                    pstats.Stats(profiler).sort_stats("tottime").print_stats(22)
                print(
                    f"{what:<8} {partitions:>10,} {stall.longest_ms:>9.1f} {stall.longest_cpu_ms:>7.1f} {stall.over_20_ms:>8} {total_ms:>9.1f}"
                )
    finally:
        await server.stop()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where the time goes (slower)")
    options = parser.parse_args()
    run(lambda: main(options.partitions, options.rounds, options.profile))
