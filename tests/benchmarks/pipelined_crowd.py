"""A node's CPU a request beside a crowd of clients with many small Produce requests under way each, of two trees in turn.

    python -m tests.benchmarks.pipelined_crowd OTHER_TREE [--clients 500] [--depth 20] [--pairs 6] [--seconds 5]

OTHER_TREE: a checkout with a .venv of its own. Each tree's node is up all the while; acks=1, records of 100 bytes, six partitions. A client sends
``depth`` requests at once, and the next when all are answered. The figure to trust is the ratio of CPU times and its standard error.
"""

import argparse
import json
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.headers import encode_request_header
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.testing.replication.client import batch
from tests.benchmarks.clusters import ROOT, cpu_s
from tests.benchmarks.wire_client import WireClient

TOPIC, PARTITIONS = "crowd", 6
VERSION = 7
SERVE = """
import json, sys
from ottla.testing.processes import ProcessCluster
with ProcessCluster(nodes=1) as cluster:
    print(json.dumps([cluster.node(1).port, cluster.node(1).pid()]), flush=True)
    sys.stdin.read()
"""


def produce(partition: int) -> bytes:
    data = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(partition, bytes(batch(b"x" * 100)))])]
    body = b"".join(encoder(ProduceRequest, VERSION)(ProduceRequest(None, 1, 30_000, data)))
    payload = encode_request_header(BY_NAME["Produce"].key, VERSION, 1, "crowd") + body
    return struct.pack(">i", len(payload)) + payload


@contextmanager
def node_of(tree: Path) -> Iterator[tuple[int, int]]:
    """Its port and process."""
    command = [str(tree / ".venv" / "bin" / "python"), "-c", SERVE]
    with subprocess.Popen(command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as serving:
        assert serving.stdin
        assert serving.stdout
        try:
            port, pid = json.loads(serving.stdout.readline())
            with WireClient(("localhost", port)) as client:
                client.create_topic(TOPIC, PARTITIONS)
            yield port, pid
        finally:
            serving.stdin.close()


class Crowd:
    """Clients of one node, each with ``depth`` requests under way."""

    def __init__(self, port: int, clients: int, depth: int) -> None:
        self._depth = depth
        self._requests = [produce(index) * depth for index in range(PARTITIONS)]
        self._untaken: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._sockets = [socket.create_connection(("localhost", port), 60) for _ in range(clients)]
        self._answer_bytes = 0
        for index, each in enumerate(self._sockets):
            self._answer_bytes = depth * self._first_answer(each, produce(index % PARTITIONS))
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ, self._requests[index % PARTITIONS])

    @staticmethod
    def _first_answer(each: socket.socket, request: bytes) -> int:
        """The size of each that follows. The partition's leader may have to be made first."""
        while True:
            each.sendall(request)
            (size,) = struct.unpack(">i", each.recv(4, socket.MSG_WAITALL))
            answer = each.recv(size, socket.MSG_WAITALL)
            if not any(answer[4 + 4 + 2 + len(TOPIC) + 4 + 4 :][:2]):
                return int(size) + 4

    def run(self, seconds: float) -> int:
        """Requests answered."""
        for key in self._selector.get_map().values():
            self._send(key)
        done, end_s = 0, time.monotonic() + seconds
        while time.monotonic() < end_s:
            for key, _ in self._selector.select(1):
                done += self._take(key)
        return done

    def _send(self, key: selectors.SelectorKey) -> None:
        self._untaken[key.fd] = self._answer_bytes
        assert isinstance(key.fileobj, socket.socket)
        assert key.fileobj.send(key.data) == len(key.data)

    def _take(self, key: selectors.SelectorKey) -> int:
        assert isinstance(key.fileobj, socket.socket)
        self._untaken[key.fd] -= len(key.fileobj.recv(1 << 16))
        if self._untaken[key.fd]:
            return 0
        self._send(key)
        return self._depth

    def close(self) -> None:
        self._selector.close()
        for each in self._sockets:
            each.close()


def measure(node: tuple[int, int], clients: int, depth: int, seconds: float) -> tuple[float, float]:
    """Requests a second, and CPU time of each in us."""
    port, pid = node
    crowd = Crowd(port, clients, depth)
    before_s = cpu_s([pid])
    done = crowd.run(seconds)
    used_s = cpu_s([pid]) - before_s
    crowd.close()
    return done / seconds, used_s / done * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    for name, default in (("clients", 500), ("depth", 20), ("pairs", 6), ("seconds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    with ExitStack() as stack:
        nodes = [stack.enter_context(node_of(tree)) for tree in (ROOT, args.other.resolve())]
        ratios = []
        for pair in range(args.pairs):
            got = {}
            for which in (0, 1) if pair % 2 else (1, 0):
                got[which] = measure(nodes[which], args.clients, args.depth, args.seconds)
            ratios.append(got[0][1] / got[1][1])
            told = (
                f"{name} {got[which][0]:,.0f}/s {got[which][1]:.1f} us" for which, name in ((0, "here"), (1, "other"))
            )
            print("; ".join(told), f"{ratios[-1]:.3f}", flush=True)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    print(f"CPU a request, here/other: {statistics.mean(ratios):.3f} +- {error:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
