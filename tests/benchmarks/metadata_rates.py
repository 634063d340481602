"""Committed metadata changes per second: Ottla and Apache Kafka in one run, and Ottla's quorum alone.

    python -m tests.benchmarks.metadata_rates [--rounds 3] [--seconds 5] [--kinds kafka,ottla] [--no-quorum]

Three combined nodes, default settings; topics of one partition and one replica. ``alter_1`` and ``create_1``: one request in flight
on one connection; ``alter_64`` and ``create_64``: one on each of 64 connections, a third of them to each node. Medians over
the rounds, which alternate between the kinds on fresh clusters. Then `quorum_rates`: three processes of the quorum alone.
Beside each figure stand the nodes' CPU and the disk's own rate of fdatasyncs just before.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import cast

import msgspec
import uvloop

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.quorum.metadata.views import TOPIC_RESOURCE
from tests.benchmarks import quorum_rates
from tests.benchmarks.clusters import KINDS, Cluster, cpu_s, running
from tests.benchmarks.fdatasync import fdatasyncs_per_second
from tests.benchmarks.wire_client import WireClient, wait_for_quorum

NODES = 3
CONNECTIONS = 64
TOPIC = "altered"

Body = Callable[[int], msgspec.Struct]


def alter(number: int) -> IncrementalAlterConfigsRequest:
    change = AlterableConfig("retention.ms", 0, str(1_000_000 + number))
    return IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(TOPIC_RESOURCE, TOPIC, [change])])


def create(number: int) -> CreateTopicsRequest:
    wanted = CreatableTopic(name=f"created-{time.time_ns()}-{number}", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)


class Requester(asyncio.Protocol):
    """One connection, one request in flight, until the time is up. ``done`` counts the answers without an error."""

    def __init__(self, api: str, version: int, body: Body, numbers: Iterator[int], deadline: float) -> None:
        self._key, self._version, self._body = BY_NAME[api].key, version, body
        self._numbers, self._deadline = numbers, deadline
        self._decode = decoder(f"{api}Response", version)
        self._buffer = bytearray()
        self.done, self.failed = 0, 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of asyncio's
        self._ask()

    def _ask(self) -> None:
        if time.monotonic() >= self._deadline:
            self.ended.set_result(None)
            return
        body = self._body(next(self._numbers))
        header = encode_request_header(self._key, self._version, 1, "benchmark")
        data = header + b"".join(encoder(type(body), self._version)(body))
        self._transport.write(len(data).to_bytes(4, "big") + data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        size = int.from_bytes(self._buffer[:4], "big")
        if len(self._buffer) < 4 + size:
            return
        frame, self._buffer = memoryview(bytes(self._buffer[4:])), bytearray()
        answer, _ = self._decode(frame, read_response_header(frame, 0, self._key, self._version)[1])
        results = answer.responses if hasattr(answer, "responses") else answer.topics
        self.failed += bool(results[0].error_code)
        self.done += not results[0].error_code
        self._ask()


async def changes(
    cluster: Cluster, api: str, version: int, body: Body, connections: int, seconds: float
) -> tuple[float, float]:
    """Committed changes a second, and CPU milliseconds of all nodes for each."""
    loop, numbers = asyncio.get_running_loop(), count()
    pids = [cluster.pid(node) for node in range(1, NODES + 1)]
    before, began = cpu_s(pids), time.monotonic()
    requesters = []
    for index in range(connections):
        host, port = cluster.address(index % NODES + 1)
        _, requester = await loop.create_connection(
            lambda: Requester(api, version, body, numbers, began + seconds), host, port
        )
        requesters.append(requester)
    await asyncio.gather(*(requester.ended for requester in requesters))
    took, cpu = time.monotonic() - began, cpu_s(pids) - before
    failed, done = sum(each.failed for each in requesters), sum(each.done for each in requesters)
    if failed:
        print(f"{api}: {failed} of {failed + done} failed", file=sys.stderr)
    return done / took, cpu * 1000 / max(1, done)


def measure(kind: str, seconds: float) -> dict[str, tuple[float, float]]:
    """Rate and CPU of each row."""
    rows: dict[str, tuple[str, int, Body, int]] = {
        "alter_1": ("IncrementalAlterConfigs", 1, alter, 1),
        "create_1": ("CreateTopics", 5, create, 1),
        "alter_64": ("IncrementalAlterConfigs", 1, alter, CONNECTIONS),
        "create_64": ("CreateTopics", 5, create, CONNECTIONS),
    }
    found = {}
    with running(kind, NODES) as cluster:
        wait_for_quorum(cluster.address(1), NODES)
        with WireClient(cluster.address(1)) as client:
            client.create_topic(TOPIC)
        time.sleep(1)
        for row, (api, version, body, connections) in rows.items():
            found[row] = uvloop.run(changes(cluster, api, version, body, connections, seconds))
            print(f"{kind} {row}: {found[row][0]:.0f}/s, {found[row][1]:.2f} CPU ms each", file=sys.stderr, flush=True)
    return found


def side_by_side(kinds: list[str], rounds: int, seconds: float) -> None:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    syncs = []
    for _ in range(rounds):
        for kind in kinds:
            syncs.append(fdatasyncs_per_second())
            for row, figures in measure(kind, seconds).items():
                found.setdefault((row, kind), []).append(figures)
    print(f"fdatasyncs a second: {', '.join(f'{rate:.0f}' for rate in syncs)}\n")
    print("| row | cluster | changes/s | CPU ms each | ratio to kafka |\n|---|---|---:|---:|---:|")
    for (row, kind), measured in sorted(found.items()):
        rate, cpu = (statistics.median(each[at] for each in measured) for at in (0, 1))
        base = found.get((row, "kafka"))
        ratio = f"{rate / statistics.median(each[0] for each in base):.1f}" if base else ""
        print(f"| {row} | {kind} | {rate:,.0f} | {cpu:.2f} | {ratio} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--kinds", default="kafka,ottla", help=f"of {', '.join(KINDS)}, or nothing")
    parser.add_argument("--no-quorum", action="store_true")
    args = parser.parse_args()
    if args.kinds:
        side_by_side(args.kinds.split(","), args.rounds, args.seconds)
    if not args.no_quorum:
        quorum_rates.report(args.seconds)


if __name__ == "__main__":
    main()
