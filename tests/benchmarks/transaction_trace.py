"""Where the time of one producer's transactions goes, as the wire tells it: how long each answer took, and what the client did between them.

    python -m tests.benchmarks.transaction_trace [--kinds ottla,kafka] [--seconds 4]

One node; librdkafka as in `groups_side_by_side` (10 records of 100 B to one partition, commit, again). A process beside them reads the packets
of the loopback interface with the kernel's timestamps (as root). Of the second half of the run, medians in microseconds: from a request
to its answer, and from an answer to the client's next request. Who waits for an answer waits for the broker; else for the client.
"""

import argparse
import multiprocessing
import socket
import statistics
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import NamedTuple

from tests.benchmarks.bench_metrics import say
from tests.benchmarks.clusters import KINDS, running
from tests.benchmarks.groups_side_by_side import SETTINGS
from tests.peers.load.groups import make_topic, transactions

ETHERNET, IPV4, IPV6, TCP = 14, 0x0800, 0x86DD, 6
SO_TIMESTAMPNS = 35
NAMES = {
    0: "Produce",
    3: "Metadata",
    10: "FindCoordinator",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    26: "EndTxn",
}


class Packet(NamedTuple):
    at_us: float
    source: int
    target: int
    data: bytes


class Event(NamedTuple):
    at_us: float
    what: str
    is_answer: bool


def watch(pipe: Connection) -> None:
    """Keeps the packets until it is told to stop."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        raw.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        raw.bind(("lo", 0))
        raw.settimeout(0.1)
        pipe.send("ready")
        found = []
        while not pipe.poll():
            try:
                frame, extra, _, address = raw.recvmsg(70_000, 128)
            except TimeoutError:
                continue
            packet = parsed(frame, extra)
            if address[2] != socket.PACKET_OUTGOING and packet is not None:  # each is seen twice
                found.append(packet)
        pipe.send(found)


def parsed(frame: bytes, extra: list[tuple[int, int, bytes]]) -> Packet | None:
    """None for what has no data."""
    (kind,) = struct.unpack_from(">H", frame, 12)
    if kind == IPV4 and frame[ETHERNET + 9] == TCP:
        start = ETHERNET + 4 * (frame[ETHERNET] & 15)
        end = ETHERNET + int.from_bytes(frame[ETHERNET + 2 : ETHERNET + 4], "big")
    elif kind == IPV6 and frame[ETHERNET + 6] == TCP:
        start = ETHERNET + 40
        end = start + int.from_bytes(frame[ETHERNET + 4 : ETHERNET + 6], "big")
    else:
        return None
    source, target = struct.unpack_from(">HH", frame, start)
    data = frame[start + 4 * (frame[start + 12] >> 4) : end]
    seconds, nanos = struct.unpack("qq", extra[0][2][:16])
    return Packet(seconds * 1e6 + nanos / 1e3, source, target, data) if data else None


def events(packets: list[Packet], port: int) -> Iterator[Event]:
    """Requests and answers; what comes in several packets counts from its first one, a request, or to its last, an answer."""
    asked: dict[tuple[int, int], int] = {}
    for at_us, source, target, data in packets:
        if target == port and len(data) >= 12:
            size, key, _, correlation = struct.unpack_from(">ihhi", data)
            if key in NAMES and len(data) >= min(size, 12):
                asked[source, correlation] = key
                yield Event(at_us, NAMES[key], is_answer=False)
        elif source == port and len(data) >= 8:
            (correlation,) = struct.unpack_from(">i", data, 4)
            answered = asked.pop((target, correlation), None)
            if answered is not None:
                yield Event(at_us, NAMES[answered], is_answer=True)


def told(found: list[Event]) -> None:
    gaps: dict[str, list[float]] = defaultdict(list)
    ends = [each.at_us for each in found if each.what == "EndTxn" and each.is_answer]
    for before, after in pairwise(found):
        who = "broker" if after.is_answer else "client"
        words = [f"{each.what} {'answered' if each.is_answer else 'asked'}" for each in (before, after)]
        gaps[f"{who}: {words[0]} -> {words[1]}"].append(after.at_us - before.at_us)
    lengths = [after - before for before, after in pairwise(ends)]
    say(f"  {len(ends)} transactions, {statistics.median(lengths):,.0f} us each")
    for name, values in gaps.items():
        if len(values) > len(ends) / 20:
            middle, late = statistics.median(values), statistics.quantiles(values, n=10)[-1]
            say(f"  {name}: {middle:,.0f} us (p90 {late:,.0f}), {len(values) / len(ends):.2f} a transaction")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm", type=int, default=3, help="runs before the one that counts")
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        with running(kind, 1, SETTINGS) as cluster:
            host, port = cluster.address(1)
            make_topic(f"{host}:{port}")
            for _ in range(args.warm):
                transactions(f"{host}:{port}", 1, args.seconds, cluster.pid(1))
            mine, its = multiprocessing.Pipe()
            watcher = multiprocessing.Process(target=watch, args=(its,))
            watcher.start()
            mine.recv()
            rate = transactions(f"{host}:{port}", 1, args.seconds, cluster.pid(1))["per_s"]
            mine.send("stop")
            found = [*events(mine.recv(), port)]
            watcher.join()
            say(f"{kind}: {rate} transactions a second")
            told(found[len(found) // 2 :])
            time.sleep(1)


if __name__ == "__main__":
    main()
