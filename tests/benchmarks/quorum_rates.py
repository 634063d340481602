"""What the quorum alone commits: three voters, a process each, gRPC on loopback, logs and LMDB on disk; no controller, no broker.

    python -m tests.benchmarks.quorum_rates [--seconds 5]

``batched``: batches of 1,000 records of 100 bytes, eight in flight. ``64 appenders``: 64 single records in flight, each followed by
the next when it is committed. An fsync is one of the leader's log.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.quorum.settings import QuorumSettings
from ottla.runtime.host import Host
from ottla.runtime.launch import run
from ottla.runtime.sync_later import SyncLater
from ottla.testing.ports import free_ports
from tests.benchmarks.fdatasync import fdatasyncs_per_second

VOTERS = 3
RECORD = b"r" * 100
APPENDERS = 64
BATCH_RECORDS, BATCHES_IN_FLIGHT = 1000, 8


class CountingSyncLater(SyncLater):
    """Counts how often the disk was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0

    def _start_round(self) -> None:
        self.rounds += 1
        super()._start_round()


class Appender:
    """The quorum's application: keeps ``in_flight`` batches of ``records`` records under way while this node leads."""

    def __init__(self) -> None:
        self.node: QuorumNode | None = None
        self.epoch = -1
        self.batch: list[bytes] = []
        self.in_flight = 0
        self.idle = asyncio.Event()
        self.committed_records = self.committed_batches = 0

    def begin(self, records: int, in_flight: int) -> None:
        self.batch = [RECORD] * records
        self.committed_records = self.committed_batches = 0
        self.idle.clear()
        for _ in range(in_flight - self.in_flight):
            self._append()
            self.in_flight += 1

    def end(self) -> None:
        self.batch = []

    def _append(self) -> None:
        assert self.node is not None
        self.node.append(self.batch, self.epoch)

    def on_commit(self, batch: CommittedBatch) -> None:
        if self.node is None or not self.node.is_leader or not batch.records:
            return
        self.committed_records += len(batch.records)
        self.committed_batches += 1
        if self.batch:
            self._append()
        else:
            self.in_flight -= 1
            if not self.in_flight:
                self.idle.set()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if self.node is not None and leader.leader_id == self.node.node_id:
            self.epoch = leader.epoch

    def on_confirmed(self) -> None: ...

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        raise NotImplementedError


def voter(node_id: int, ports: list[int], home: str, seconds: float, pipe: Pipe) -> None:
    """One process. The leader reports (row, records a second, CPU s a second of its own, fsyncs, batches) and the end."""
    run(lambda: _vote(node_id, ports, home, seconds, pipe))


async def _vote(node_id: int, ports: list[int], home: str, seconds: float, pipe: Pipe) -> None:
    voters = {index + 1: Endpoint("127.0.0.1", port) for index, port in enumerate(ports)}
    settings = QuorumSettings(node_id=node_id, cluster_id="benchmark", voters=voters, is_voter=True)
    host, transport, syncs, appender = Host.real(), GrpcTransport(), CountingSyncLater(), Appender()
    directory = f"{home}/{node_id}"
    config = LogConfig(retention_ms=-1, max_message_bytes=2**31 - 1, segment_ms=2**62)
    log = Log.open(host.disk, directory, TopicPartition("__cluster_metadata", 0), config, now_ms=0)
    store = host.open_store(f"{directory}/quorum-state")
    node = appender.node = QuorumNode(settings, host, transport, log, store, appender, sync_later=syncs)
    server = await transport.serve("127.0.0.1", ports[node_id - 1], {QUORUM_SERVICE: node.handle_request})
    await node.start()
    while not pipe.poll():
        if appender.epoch >= 0:
            await _lead(appender, syncs, seconds, pipe)
            appender.epoch = -1
        await asyncio.sleep(0.05)
    await node.stop(graceful=False)
    await server.close()
    await transport.close()
    log.close()
    store.close()


async def _lead(appender: Appender, syncs: CountingSyncLater, seconds: float, pipe: Pipe) -> None:
    await asyncio.sleep(0.5)
    rows: dict[str, Callable[[], None]] = {
        "batched": lambda: appender.begin(BATCH_RECORDS, BATCHES_IN_FLIGHT),
        "64 appenders": lambda: appender.begin(1, APPENDERS),
    }
    for row, begin in rows.items():
        began, cpu, rounds = time.monotonic(), time.process_time(), syncs.rounds
        begin()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        figures = (appender.committed_records / took, (time.process_time() - cpu) / took)
        pipe.send((row, *figures, appender.committed_batches, syncs.rounds - rounds))
        appender.end()
        await appender.idle.wait()
    pipe.send(None)


def report(seconds: float) -> None:
    """Prints the table."""
    context = get_context("spawn")
    home = tempfile.mkdtemp(prefix="bench-quorum-")
    ports = free_ports(VOTERS)
    print(f"\nThe quorum alone; the disk's own fdatasyncs a second: {fdatasyncs_per_second():.0f}\n")
    pipes, processes = [], []
    for node_id in range(1, VOTERS + 1):
        Path(f"{home}/{node_id}").mkdir()
        ours, theirs = context.Pipe()
        process = context.Process(target=voter, args=(node_id, ports, home, seconds, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    try:
        print("| row | records/s | leader's CPU s/s | batches per fsync |\n|---|---:|---:|---:|")
        while (told := _next(pipes)) is not None:
            row, rate, cpu, batches, rounds = told
            print(f"| {row} | {rate:,.0f} | {cpu:.2f} | {batches / max(1, rounds):.1f} |", flush=True)
    finally:
        for pipe in pipes:
            pipe.send("stop")
        for process in processes:
            process.join(10)
        shutil.rmtree(home, ignore_errors=True)


def _next(pipes: list["Pipe"]) -> tuple[str, float, float, int, int] | None:
    while True:
        for pipe in pipes:
            if pipe.poll(0.02):
                told: tuple[str, float, float, int, int] | None = pipe.recv()
                return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    report(parser.parse_args().seconds)


if __name__ == "__main__":
    main()
