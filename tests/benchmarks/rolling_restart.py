"""What clients with default settings notice while three nodes are restarted one after the other: errors, and how long a produce takes.

    python -m tests.benchmarks.rolling_restart [--rounds 2] [--rate 500] [--kinds ottla,kafka] [--clients librdkafka,kafka-python]

Three combined nodes, one topic of six partitions on all of them. Of each client library one producer (a record of 100 bytes
every 1/rate seconds, acks=all as both have it by default) and one consumer in a group, each a process of its own. A round
stops each node with SIGTERM, starts it again, and goes on to the next once all replicas are in sync. The time of a produce is from
the call to its acknowledgement; that of a consumed record from the producer's call until the application has it. Each round's
lines go to standard error; the table of all rounds, in Markdown, to standard output.
"""

import argparse
import multiprocessing as mp
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.benchmarks.clusters import KINDS, Cluster, running
from tests.benchmarks.failover import percentile

NODES = 3
PARTITIONS = 6
TOPIC = "rolling-restart"
CLIENTS = ("librdkafka", "kafka-python")
BETWEEN_S = 0.5
LATE_S = 60.0
STARTED_S = 120.0
"""For two interpreters to begin, a first group to be made and to settle: on a machine that does much else, the first alone takes half a minute."""
QUIET = {"log_level": 2}  # what librdkafka tells nobody but its log
SPAWN = mp.get_context("spawn")


class Seen(msgspec.Struct):
    """What one client saw. Times in seconds, by when they began."""

    errors: list[str]
    times: list[tuple[float, float]]
    records: list[int]
    """Numbers of those that were acknowledged, or read."""


# The value of a record: whose it is, its number, when the application handed it over.


def value_of(client: str, number: int, now: float) -> bytes:
    return f"{client} {number} {now:.6f}".encode().ljust(100)


def parse(value: bytes) -> tuple[str, int, float]:
    client, number, at = value.split()
    return client.decode(), int(number), float(at)


def paced(rate: float, stop: Event) -> Iterator[int]:
    """Numbers, as many a second; late ones at once."""
    began = time.monotonic()
    number = 0
    while not stop.is_set():
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        yield number
        number += 1


def produce_librdkafka(bootstrap: str, rate: float, stop: Event, done: Connection) -> None:
    seen = Seen([], [], [])
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})

    for number in paced(rate, stop):
        began = time.time()

        def delivered(error: KafkaError | None, _: Message, number: int = number, began: float = began) -> None:
            if error:
                seen.errors.append(str(error))
            else:
                seen.records.append(number)
                seen.times.append((began, time.time() - began))

        producer.produce(TOPIC, value_of("librdkafka", number, began), on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(LATE_S)
    if left:
        seen.errors.append(f"{left} records were neither acknowledged nor refused")
    done.send(seen)


def produce_kafka_python(bootstrap: str, rate: float, stop: Event, done: Connection) -> None:
    seen = Seen([], [], [])
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))

    for number in paced(rate, stop):
        began = time.time()

        def delivered(_: object, number: int = number, began: float = began) -> None:
            seen.records.append(number)
            seen.times.append((began, time.time() - began))

        sent = producer.send(TOPIC, value_of("kafka-python", number, began))
        sent.add_callback(delivered).add_errback(lambda error: seen.errors.append(repr(error)))
    producer.flush(LATE_S)
    producer.close()
    done.send(seen)


class Reading:
    """What a consumer read, and whether it may end: the other end says which records were acknowledged, once that is known."""

    def __init__(self, library: str, other_end: Connection) -> None:
        self.seen = Seen([], [], [])
        self._library = library
        self._other_end = other_end
        self._missing: set[int] | None = None
        self._until = 0.0

    def note(self, value: bytes) -> None:
        """A record of the producer of the same library; the other's is somebody else's business."""
        client, number, at = parse(value)
        if client != self._library:
            return
        self.seen.records.append(number)
        self.seen.times.append((at, time.time() - at))
        if self._missing is not None:
            self._missing.discard(number)

    def is_over(self) -> bool:
        if self._missing is None:
            if not self._other_end.poll():
                return False
            self._missing = set(self._other_end.recv()) - set(self.seen.records)
            self._until = time.monotonic() + LATE_S
        return not self._missing or time.monotonic() > self._until

    def end(self) -> None:
        if self._missing:
            self.seen.errors.append(f"{len(self._missing)} acknowledged records were not read")
        self._other_end.send(self.seen)


def consume_librdkafka(bootstrap: str, ready: Event, other_end: Connection) -> None:
    reading = Reading("librdkafka", other_end)
    settings = {"bootstrap.servers": bootstrap, "group.id": "librdkafka", "auto.offset.reset": "earliest", **QUIET}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC], on_assign=lambda *_: ready.set())
    while not reading.is_over():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            reading.seen.errors.append(str(message.error()))
        else:
            reading.note(message.value() or b"")
    consumer.close()
    reading.end()


POLL_MS = 1_000
"""kafka-python 3.0.12 may have joined before it knew the topic's partitions. It joins again then, assigns them (so that its `need_rejoin` says no
more that it has to), and if that poll's time is up before the answer is there no other poll looks for it: it reads nothing, for good, and
without heartbeats. Beside other work a rebalance takes longer than a tenth of a second now and then."""


def consume_kafka_python(bootstrap: str, ready: Event, other_end: Connection) -> None:
    reading = Reading("kafka-python", other_end)
    servers = bootstrap.split(",")
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=servers, group_id="kafka-python", auto_offset_reset="earliest")
    while not reading.is_over():
        try:
            polled = consumer.poll(timeout_ms=POLL_MS)
        except Exception as error:  # whatever reaches the application is what is counted
            reading.seen.errors.append(repr(error))
            continue
        if consumer.assignment():
            ready.set()
        for records in polled.values():
            for record in records:
                reading.note(record.value)
    consumer.close()
    reading.end()


PRODUCE = {"librdkafka": produce_librdkafka, "kafka-python": produce_kafka_python}
CONSUME = {"librdkafka": consume_librdkafka, "kafka-python": consume_kafka_python}


class Clients:
    """A producer and a consumer of each library, in processes of their own."""

    def __init__(self, bootstrap: str, libraries: Sequence[str], rate: float) -> None:
        self._stop = SPAWN.Event()
        self._libraries = libraries
        self._processes: list[mp.process.BaseProcess] = []
        ready = [SPAWN.Event() for _ in libraries]
        self._consumers = [
            self._run(CONSUME[library], bootstrap, event) for library, event in zip(libraries, ready, strict=True)
        ]
        for library, event in zip(libraries, ready, strict=True):
            if not event.wait(STARTED_S):
                raise SystemExit(f"the consumer of {library} was assigned nothing in {STARTED_S:.0f} s")
        self._producers = [self._run(PRODUCE[library], bootstrap, rate, self._stop) for library in libraries]

    def _run(self, client: Callable[..., None], *args: object) -> Connection:
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=client, args=(*args, there), daemon=True)
        process.start()
        self._processes.append(process)
        return here

    def end(self) -> dict[str, Seen]:
        """Stops the producers, lets the consumers read what was acknowledged, and tells what each saw."""
        self._stop.set()
        found: dict[str, Seen] = {}
        for library, producer, consumer in zip(self._libraries, self._producers, self._consumers, strict=True):
            sent: Seen = producer.recv()
            consumer.send(sent.records)
            found[f"{library} produce"], found[f"{library} consume"] = sent, consumer.recv()
        return found

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@contextmanager
def clients(bootstrap: str, libraries: Sequence[str], rate: float) -> Iterator[Clients]:
    at_work = Clients(bootstrap, libraries, rate)
    try:
        yield at_work
    finally:
        at_work.kill()


def make_topic(admin: AdminClient) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(60)


def wait_in_sync(admin: AdminClient) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        partitions = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        if len(partitions) == PARTITIONS and all(len(each.isrs) == NODES for each in partitions):
            return
        time.sleep(0.05)
    raise SystemExit("the ISRs did not fill up again in 120 s")


def restart(cluster: Cluster, node: int) -> float:
    """The seconds until it takes requests again."""
    began = time.monotonic()
    os.kill(cluster.pid(node), signal.SIGTERM)
    while cluster.is_alive(node):
        time.sleep(0.005)
    stopped = time.monotonic() - began
    cluster.start(node)
    print(f"node {node}: stopped in {stopped:.2f} s, back after {time.monotonic() - began:.2f}", file=sys.stderr)
    return began


def roll(cluster: Cluster, admin: AdminClient) -> None:
    for node in range(1, NODES + 1):
        time.sleep(BETWEEN_S)
        restart(cluster, node)
        wait_in_sync(admin)


def told(kind: str, who: str, times_s: list[float], errors: int) -> str:
    ms = [each * 1000 for each in times_s]
    shares = " | ".join(f"{percentile(ms, share):.0f}" for share in (0.5, 0.99, 0.999))
    return f"| {kind} | {who} | {len(ms)} | {errors} | {shares} | {max(ms):.0f} |"


def measure(kind: str, rounds: int, rate: float, libraries: Sequence[str]) -> None:
    times: dict[str, list[float]] = {}
    errors: dict[str, int] = {}
    with running(kind, NODES) as cluster:
        bootstrap = ",".join("{}:{}".format(*cluster.address(node)) for node in range(1, NODES + 1))
        admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000, **QUIET})
        make_topic(admin)
        for _ in range(rounds):
            with clients(bootstrap, libraries, rate) as at_work:
                time.sleep(1)  # what connecting takes is another question
                began = time.time()
                roll(cluster, admin)
                seen = at_work.end()
            for who, each in seen.items():
                taken = [took for at, took in each.times if at >= began]
                times.setdefault(who, []).extend(taken)
                errors[who] = errors.get(who, 0) + len(each.errors)
                print(told(kind, who, taken, len(each.errors)), *each.errors[:3], file=sys.stderr, flush=True)
    for who, taken in times.items():
        print(told(kind, who, taken, errors[who]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--kinds", default="ottla", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--clients", default=",".join(CLIENTS))
    args = parser.parse_args()
    print(
        "| cluster | client | records | errors | p50 ms | p99 ms | p99.9 ms | max ms |\n|---|---|---:|---:|---:|---:|---:|---:|"
    )
    for kind in args.kinds.split(","):
        measure(kind, args.rounds, args.rate, args.clients.split(","))


if __name__ == "__main__":
    main()
