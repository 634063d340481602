"""What cleaning a log beside it does to the time of a produce request.

    python -m tests.benchmarks.bench_cleaning [--rounds 3] [--mb 150] [--limit BYTES]

A real broker; a producer with one record in flight; a compacted topic of 100 B keyed records per round, whose cleaning is let begin
by its dirty ratio. Each round times produces first without and then with the worker at its work, so the two alternate. Goal: p99
while cleaning at most twice that without. A worker has niceness 10; ``log.cleaner.io.max.bytes.per.second`` limits it further
(``--limit``).
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.log.records import Record, encode_batch
from ottla.testing.processes import ProcessCluster
from tests.benchmarks.wire_client import RequestFailed, WireClient

SERVER = {"log.cleaner.backoff.ms": "100", "log.flush.offset.checkpoint.interval.ms": "500"}
RECORDS_PER_BATCH = 140
BATCHES = 700
SEGMENT_BYTES = 20 << 20
PRODUCE_VERSION = 9
QUIET_S = 4.0
LOOK_S = 0.02
START_S = 60.0
GOAL = 2.0
TICKS = os.sysconf("SC_CLK_TCK")


class Worker(NamedTuple):
    """What the kernel says of a cleaner process."""

    pid: int
    niceness: int
    cpu_s: float


class Phase(NamedTuple):
    """Produces of one phase: microseconds each."""

    times_us: list[float]
    worker_cpu_s: float = 0.0
    wall_s: float = 0.0
    niceness: int = 0


def batches() -> Iterator[bytes]:
    """Keyed records of about 100 bytes, keys at random."""
    keys = Random(1)
    for _ in range(BATCHES):
        records = [
            Record(i, 1_700_000_000_000, b"key-%08d" % keys.randrange(100_000), b"v" * 80)
            for i in range(RECORDS_PER_BATCH)
        ]
        yield bytes(encode_batch(records))


def produce(client: WireClient, topic: str, batch: bytes) -> None:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = client.ask("Produce", PRODUCE_VERSION, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]))
    error = answer.responses[0].partition_responses[0].error_code
    if error:
        raise RequestFailed(f"produce: error {error}")


def wait_for_topic(client: WireClient, topic: str, batch: bytes) -> None:
    """The broker may not know yet that it leads."""
    for _ in range(500):
        with suppress(RequestFailed):
            produce(client, topic, batch)
            return
        time.sleep(0.01)
    raise SystemExit(f"{topic} takes no records")


def fill(client: WireClient, topic: str, made: list[bytes], total_bytes: int) -> None:
    """A compacted topic that is never dirty enough, until its ratio is changed."""
    client.create_topic(topic)
    client.alter_topic(topic, "min.cleanable.dirty.ratio", "1.0")
    client.alter_topic(topic, "cleanup.policy", "compact")
    client.alter_topic(topic, "segment.bytes", str(SEGMENT_BYTES))
    wait_for_topic(client, topic, made[0])
    written = number = 0
    while written < total_bytes:
        batch = made[number % len(made)]
        produce(client, topic, batch)
        written += len(batch)
        number += 1


def worker_of(broker: int) -> Worker | None:
    """The broker's cleaner process, if one runs."""
    for pid in _children(broker):
        with suppress(OSError):
            if b"cleaner_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
                return Worker(int(pid), int(fields[16]), (int(fields[11]) + int(fields[12])) / TICKS)
    return None


def _children(broker: int) -> Iterator[str]:
    """A child is listed with the thread that started it."""
    for task in Path(f"/proc/{broker}/task").iterdir():
        with suppress(OSError):
            yield from (task / "children").read_text(encoding="ascii").split()


def quiet(client: WireClient, record: bytes) -> Phase:
    times: list[float] = []
    until = time.monotonic() + QUIET_S
    while time.monotonic() < until:
        times.append(_timed(client, record))
    return Phase(times)


def beside_cleaning(client: WireClient, record: bytes, broker: int, topic: str) -> Phase:
    """From the moment the worker is there until it is gone."""
    client.alter_topic(topic, "min.cleanable.dirty.ratio", "0.01")
    deadline = time.monotonic() + START_S
    while (worker := worker_of(broker)) is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"the cleaning of {topic} did not begin")
        time.sleep(0.005)
    times: list[float] = []
    began = looked = time.monotonic()
    last: Worker | None = worker
    while last is not None:
        worker = last
        times.append(_timed(client, record))
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            last = worker_of(broker)
    return Phase(times, worker.cpu_s, time.monotonic() - began, worker.niceness)


def _timed(client: WireClient, record: bytes) -> float:
    began = time.perf_counter()
    produce(client, "probe", record)
    return (time.perf_counter() - began) * 1e6


def marks(times: list[float]) -> tuple[float, float, float]:
    """p50, p99, p99.9."""
    ordered = sorted(times)
    return tuple(ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99, 0.999))  # type: ignore[return-value]  # three


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_cleaning")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=int, default=150, help="records to clean in each round")
    parser.add_argument("--limit", type=int, default=0, help="log.cleaner.io.max.bytes.per.second, 0 for none")
    options = parser.parse_args()
    settings = SERVER | ({"log.cleaner.io.max.bytes.per.second": str(options.limit)} if options.limit else {})
    made, record = list(batches()), bytes(encode_batch([Record(0, 1_700_000_000_000, b"k", b"v" * 80)]))
    print("| round | produces | p50 us | p99 us | p99.9 us | worker MB/s | worker CPU | niceness |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    without: list[float] = []
    beside: list[float] = []
    with ProcessCluster(nodes=1, settings=settings) as cluster:
        broker = cluster.node(1).pid()
        assert broker is not None
        with WireClient(("localhost", cluster.node(1).port)) as client:
            client.create_topic("probe")
            wait_for_topic(client, "probe", record)
            for number in range(options.rounds):
                topic = f"dirty-{number}"
                fill(client, topic, made, options.mb << 20)
                time.sleep(1.5)  # its segments are on stable storage, and the recovery point says so
                phase = quiet(client, record)
                without += phase.times_us
                row(f"{number} without", phase)
                phase = beside_cleaning(client, record, broker, topic)
                beside += phase.times_us
                row(f"{number} beside", phase, options.mb)
    ratio = marks(beside)[1] / marks(without)[1]
    print(f"\np99 while cleaning / without: {ratio:.2f} (goal <= {GOAL:.0f}: {'met' if ratio <= GOAL else 'missed'})")


def row(name: str, phase: Phase, mb: int = 0) -> None:
    p50, p99, p999 = marks(phase.times_us)
    worker = (
        f"{mb * 1.048576 / phase.wall_s:.0f} | {phase.worker_cpu_s / phase.wall_s:.0%} | {phase.niceness}"
        if mb
        else " | | "
    )
    print(f"| {name} | {len(phase.times_us)} | {p50:.0f} | {p99:.0f} | {p999:.0f} | {worker} |", flush=True)


if __name__ == "__main__":
    main()
