"""How long others wait beside one huge request: one node, an ApiVersions every 2 ms on a connection of its own.

    .venv/bin/python -m tests.benchmarks.bench_large_requests [--rounds 3]

Each request is as large as it may be and has the smallest entries that there are.
"""

import argparse
import socket
import struct
import sys
import threading
import time

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.headers import encode_request_header
from ottla.testing import Cluster
from tests.benchmarks.wire_client import WireClient

PING_S = 0.002
PLAIN_BYTES = (2 << 20) - 64
FETCH_BYTES = (16 << 20) - 128


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def list_offsets() -> tuple[str, int, bytes]:
    """Of one topic; a partition is its index and a time."""
    entry = struct.pack(">iq", 0, -1)
    count = PLAIN_BYTES // len(entry)
    return "ListOffsets", 1, struct.pack(">iih1si", -1, 1, 1, b"t", count) + entry * count


def offset_fetch() -> tuple[str, int, bytes]:
    """Topics without a partition and with a name of one letter."""
    entry = struct.pack(">h1si", 1, b"t", 0)
    count = PLAIN_BYTES // len(entry)
    return "OffsetFetch", 1, struct.pack(">h1si", 1, b"g", count) + entry * count


def metadata() -> tuple[str, int, bytes]:
    """Topics with a name of one letter."""
    entry = struct.pack(">h1s", 1, b"t")
    count = PLAIN_BYTES // len(entry)
    return "Metadata", 4, struct.pack(">i", count) + entry * count + b"\0"


def fetch_topics() -> tuple[str, int, bytes]:
    """Topics without a partition."""
    entry = bytes(15) + b"t" + b"\1\0"
    count = FETCH_BYTES // len(entry)
    head = struct.pack(">iiibii", 0, 1, 1 << 20, 0, 0, -1)
    return "Fetch", 15, head + varint(count + 1) + entry * count + b"\1\1\0"


def fetch_partitions() -> tuple[str, int, bytes]:
    """Partitions of a topic that there is not."""
    entry = struct.pack(">iiqiqix", 0, -1, 0, -1, -1, 1)
    count = FETCH_BYTES // len(entry)
    head = struct.pack(">iiibii", 0, 1, 1 << 20, 0, 0, -1)
    return "Fetch", 15, head + varint(2) + bytes(15) + b"t" + varint(count + 1) + entry * count + b"\0" + b"\1\1\0"


class Pinger(threading.Thread):
    """Asks until it is told to stop; ``waits`` in seconds."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.over = threading.Event()
        self._address = address

    def run(self) -> None:
        with WireClient(self._address) as client:
            while not self.over.is_set():
                began_s = time.perf_counter()
                client.versions()
                self.waits.append(time.perf_counter() - began_s)
                time.sleep(PING_S)


def send(address: tuple[str, int], api: str, version: int, body: bytes) -> tuple[float, int]:
    """Seconds until the whole answer is here, and its size; 0: the connection was closed."""
    payload = encode_request_header(BY_NAME[api].key, version, 1, "benchmark") + body
    with socket.create_connection(address, 60) as connection:
        began_s = time.perf_counter()
        connection.sendall(struct.pack(">i", len(payload)) + payload)
        head = connection.recv(4, socket.MSG_WAITALL)
        size = left = struct.unpack(">i", head)[0] if head else 0
        while left:
            left -= len(connection.recv(min(left, 1 << 20)))
        return time.perf_counter() - began_s, size


def measure(address: tuple[str, int], request: tuple[str, int, bytes]) -> str:
    pinger = Pinger(address)
    pinger.start()
    time.sleep(0.3)
    before = len(pinger.waits)
    try:
        took_s, size = send(address, *request)
        told = f"answered after {took_s * 1000:5.0f} ms with {size >> 10:6} KB"
    except OSError as error:
        told = f"refused ({error})"
    pinger.over.set()
    pinger.join()
    waits = sorted(pinger.waits[before - 1 :])
    return f"{request[0]:12} {len(request[2]) >> 10:6} KB  longest wait {waits[-1] * 1000:6.1f} ms  {told}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with Cluster(nodes=1) as cluster:
        host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
        for make in (list_offsets, offset_fetch, metadata, fetch_topics, fetch_partitions):
            for _ in range(options.rounds):
                print(measure((host, int(port)), make()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
