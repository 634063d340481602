#!/usr/bin/env python3
"""Consumer groups and transactions on any Kafka-wire broker of one node: rates, and the broker's CPU a request.

python -m tests.peers.load.groups HOST:PORT PID [--connections 64] [--seconds 5] [--parts commit,join,transaction]   one JSON line

commit      one OffsetCommit (v2, one partition) in flight on each connection, each for a group of its own without members
join        from the first JoinGroup of as many groups (all sent at once) until the last SyncGroup is answered
heartbeat   with join: one Heartbeat (v1) in flight on each connection, each the only member of one of those groups
transaction one producer, and eight at once: 10 records of 100 B to one partition, commit, again (librdkafka)
Needs confluent-kafka. The client is one Python process: it takes up to a core of its own. Run it four times on each broker and
count the last two: the first two warm a JVM (cold, Apache Kafka takes four times the CPU).
"""

import argparse
import json
import os
import selectors
import socket
import struct
import threading
import time

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.load.beside import cpu_s

TOPIC = "groups-topic"
PARTS = "commit,join,transaction"
NO_METADATA = b"\0" * 10
OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 10, 11, 12, 14
SESSION_MS = 30_000

Figures = dict[str, object]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def frame(key: int, version: int, body: bytes) -> bytes:
    return data(struct.pack(">hhi", key, version, 7) + text("groups") + body)


class Caller:
    """One connection."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> bytes:
        """The body of the next answer, and of its header the correlation id."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)[4:]

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise SystemExit("the broker closed a connection")
            found += part
        return found

    def call(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()


def find(caller: Caller, group: str) -> None:
    """Returns when somebody coordinates the group."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if struct.unpack_from(">h", caller.call(frame(FIND_COORDINATOR, 0, text(group))))[0] == 0:
            return
        time.sleep(0.1)
    raise SystemExit(f"{group}: no coordinator in 60 s")


def rate(callers: list[Caller], requests: list[bytes], error_at: int, seconds: float, pid: int) -> Figures:
    """One request in flight on each; ``error_at``: where the int16 error code stands in the answer."""
    selector = selectors.EpollSelector()
    for caller, request in zip(callers, requests, strict=True):
        selector.register(caller.socket, selectors.EVENT_READ, (caller, request))
        caller.send(request)
    start, cpu, done = time.monotonic(), cpu_s([pid]), 0
    errors: dict[int, int] = {}
    while time.monotonic() - start < seconds:
        for key, _ in selector.select(1):
            caller, request = key.data
            error = struct.unpack_from(">h", caller.receive(), error_at)[0]
            if error:
                errors[error] = errors.get(error, 0) + 1
            done += 1
            caller.send(request)
    spent, used = time.monotonic() - start, cpu_s([pid]) - cpu
    for caller in callers:
        caller.receive()
    return {"per_s": round(done / spent), "cpu_us": round(used / done * 1e6, 1), "errors": errors}


def commit_request(group: str) -> bytes:
    topic = text(TOPIC) + struct.pack(">iiq", 1, 0, 1) + text("")
    return frame(OFFSET_COMMIT, 2, text(group) + struct.pack(">i", -1) + text("") + struct.pack(">qi", -1, 1) + topic)


def join_request(group: str) -> bytes:
    protocols = struct.pack(">i", 1) + text("range") + data(NO_METADATA)
    timeouts = struct.pack(">ii", SESSION_MS, SESSION_MS)
    return frame(JOIN_GROUP, 2, text(group) + timeouts + text("") + text("consumer") + protocols)


def joined(answer: bytes) -> tuple[int, str]:
    """Generation and member id."""
    _, error, generation = struct.unpack_from(">ihi", answer)
    if error:
        raise SystemExit(f"JoinGroup: error {error}")
    at, names = 10, []
    for _ in range(3):  # protocol, leader, member id
        size = struct.unpack_from(">h", answer, at)[0]
        names.append(answer[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return generation, names[2]


def join(callers: list[Caller], groups: list[str]) -> tuple[list[bytes], float]:
    """Heartbeats to send, and the seconds until all were members with an assignment."""
    start = time.monotonic()
    for caller, group in zip(callers, groups, strict=True):
        caller.send(join_request(group))
    beats = []
    for caller, group in zip(callers, groups, strict=True):
        generation, member = joined(caller.receive())
        mine = text(group) + struct.pack(">i", generation) + text(member)
        caller.send(frame(SYNC_GROUP, 1, mine + struct.pack(">i", 1) + text(member) + data(NO_METADATA)))
        beats.append(frame(HEARTBEAT, 1, mine))
    for caller in callers:
        error = struct.unpack_from(">ih", caller.receive())[1]
        if error:
            raise SystemExit(f"SyncGroup: error {error}")
    return beats, time.monotonic() - start


def transactions(bootstrap: str, producers: int, seconds: float, pid: int) -> Figures:
    counts = [0] * producers
    mine = f"groups-{os.getpid()}-{producers}"
    made = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{mine}-{index}", "linger.ms": 0})
        for index in range(producers)
    ]
    for producer in made:
        producer.init_transactions(60)
    start, cpu = time.monotonic(), cpu_s([pid])

    def run(index: int) -> None:
        producer = made[index]
        while time.monotonic() - start < seconds:
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(TOPIC, b"x" * 100, partition=0)
            producer.commit_transaction(60)
            counts[index] += 1

    threads = [threading.Thread(target=run, args=(index,)) for index in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done, spent = sum(counts), time.monotonic() - start
    return {"per_s": round(done / spent, 1), "cpu_us": round((cpu_s([pid]) - cpu) / max(done, 1) * 1e6)}


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # by an earlier run
            raise


def measure(bootstrap: str, pid: int, connections: int, seconds: float, parts: list[str]) -> Figures:
    host, _, port = bootstrap.rpartition(":")
    make_topic(bootstrap)
    callers = [Caller(host, int(port)) for _ in range(connections)]
    groups = [f"group-{time.time_ns()}-{index}" for index in range(connections)]
    figures: Figures = {}
    if "commit" in parts:
        for caller, group in zip(callers, groups, strict=True):
            find(caller, group)
        requests = [commit_request(group) for group in groups]
        rate(callers, requests, -2, 1, pid)  # the first ones load
        figures["commit"] = rate(callers, requests, -2, seconds, pid)
    if "join" in parts:
        others = [f"{group}-member" for group in groups]
        for caller, group in zip(callers, others, strict=True):
            find(caller, group)
        beats, spent_s = join(callers, others)
        figures["join"] = {"ms": round(spent_s * 1000, 1)}
        figures["heartbeat"] = rate(callers, beats, 4, seconds, pid)
    if "transaction" in parts:
        figures["transaction"] = transactions(bootstrap, 1, seconds, pid)
        figures["transaction_8"] = transactions(bootstrap, 8, seconds, pid)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap")
    parser.add_argument("pid", type=int)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--parts", default=PARTS)
    args = parser.parse_args()
    print(json.dumps(measure(args.bootstrap, args.pid, args.connections, args.seconds, args.parts.split(","))))


if __name__ == "__main__":
    main()
