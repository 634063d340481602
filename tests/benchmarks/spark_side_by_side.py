"""Our source beside Spark's own Kafka connector, in one session and in turn: rows read, rows landed in Parquet, what a trigger costs.

spark_side_by_side.py [--records N] [--rounds N] [--rows read,ingest,trigger,tasks,memory]

Needs `make setup-spark spark-peers`. A line for each figure; what the goal is stands beside it in docs/benchmarks.md."""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline import register
from ottla.pipeline.jobs.checkpoint_files import MANAGER, WITHOUT_FORKS
from ottla.testing.processes import ProcessCluster
from tests.spark.kills.job import descendants
from tests.spark.records import create
from tests.spark.session import quiet_logging, start

FORMATS = ("kafka", "ottla")
"""Spark's own, and ours."""
PARTITIONS = 8
VALUE_BYTES = 100
ROWS = ("read", "ingest", "trigger", "tasks", "memory")


def session(directory: Path, master: str) -> SparkSession:
    """With the second compiler, unlike the tests': what is measured runs for long."""
    java = f"{quiet_logging(directory)}"
    spark = start(directory, master, {"spark.driver.extraJavaOptions": java, "spark.driver.memory": "3g"})
    register(spark)
    return spark


def fill(bootstrap: str, topic: str, records: int, partitions: int) -> None:
    """Values that lz4 makes something of, as it does of telemetry."""
    create(bootstrap, topic, partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    padding = os.urandom(VALUE_BYTES // 4).hex()
    for number in range(records):
        value = f"{number:012d}{padding}{padding}"[:VALUE_BYTES]
        while True:
            try:
                producer.produce(topic, value, str(number % 10_000), number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(300) == 0


def reading(spark: SparkSession, kind: str, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


@dataclass(frozen=True)
class Cost:
    """Of one round: what passed, and what the CPUs did for it, which says more on a machine that others use too."""

    wall_s: float
    cpu_s: float


def cost(spark: SparkSession, work: Callable[[], object]) -> Cost:
    began, used_s = time.perf_counter(), spark_cpu_s(spark)
    work()
    return Cost(time.perf_counter() - began, spark_cpu_s(spark) - used_s)


def spark_cpu_s(spark: SparkSession) -> float:
    """Of the JVM and of its Python workers until now; the broker is none of them."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc.pid
    return sum(map(_cpu_s, [jvm, *descendants(jvm)]))


def _cpu_s(pid: int) -> float:
    """With the children that it outlived."""
    with suppress(OSError):
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def in_turn(spark: SparkSession, rounds: int, work: Callable[[str], object]) -> dict[str, list[Cost]]:
    """Each round's cost by format, after one that does not count."""
    costs: dict[str, list[Cost]] = {kind: [] for kind in FORMATS}
    for number in range(rounds + 1):
        for kind in FORMATS if number % 2 else FORMATS[::-1]:
            found = cost(spark, lambda kind=kind: work(kind))  # type: ignore[misc]  # bound now
            costs[kind] += [found] if number else []
    return costs


def tell(row: str, records: int, costs: dict[str, list[Cost]]) -> None:
    """Millions of rows a second, of the median round and the best; millions a second of CPU."""
    median = {kind: records / statistics.median(each.wall_s for each in found) / 1e6 for kind, found in costs.items()}
    best = {kind: records / min(each.wall_s for each in found) / 1e6 for kind, found in costs.items()}
    by_cpu = {kind: records / statistics.median(each.cpu_s for each in found) / 1e6 for kind, found in costs.items()}
    cells = [f"{kind} {median[kind]:.2f} (best {best[kind]:.2f}, a CPU second {by_cpu[kind]:.2f})" for kind in costs]
    ratios = (
        [f"{figures['ottla'] / figures['kafka']:.2f}" for figures in (median, best, by_cpu)] if len(costs) > 1 else []
    )
    print(f"{row}: M rows/s {', '.join(cells)}; ratios {' '.join(ratios)}", flush=True)


def read_rows(spark: SparkSession, bootstrap: str, records: int, rounds: int) -> None:
    def work(kind: str) -> None:
        reading(spark, kind, bootstrap, "bench").write.format("noop").mode("overwrite").save()

    tell("read", records, in_turn(spark, rounds, work))


def ingest_rows(spark: SparkSession, bootstrap: str, records: int, rounds: int) -> None:
    """Each as its users do: Spark's connector into Spark's file sink, ours into the sink of `ottla spark ingest`."""

    def work(kind: str) -> None:
        directory = tempfile.mkdtemp(prefix="ottla-bench-")
        stream = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", "bench")
        frame = stream.option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format({"kafka": "parquet", "ottla": "ottla-parquet"}[kind])
        writer = writer.option("path", f"{directory}/table").option("checkpointLocation", f"{directory}/checkpoint")
        run(writer.option("compression", "zstd").trigger(availableNow=True).start())
        shutil.rmtree(directory)

    tell("ingest", records, in_turn(spark, rounds, work))


def run(query: StreamingQuery) -> None:
    query.awaitTermination()
    assert query.exception() is None, query.exception()


@contextmanager
def trickle(bootstrap: str, topic: str) -> Iterator[None]:
    """A record every few milliseconds, so that each trigger finds some."""
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def send() -> None:
        number = 0
        while not stop.wait(0.005):
            producer.produce(topic, b"x" * VALUE_BYTES, partition=number % 2)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(30)


TRIGGERS = {"kafka": ("kafka", ""), "ottla": ("ottla", WITHOUT_FORKS), "kafka so set": ("kafka", WITHOUT_FORKS)}
"""Format, and how the checkpoint's files are written: Spark's connector with Spark's defaults, ours as `ottla spark` sets it; and theirs as
it would be if somebody set it likewise."""


def trigger_floor(spark: SparkSession, bootstrap: str, rounds: int) -> None:
    """Milliseconds of a trigger with a handful of rows in two partitions, into a sink that does nothing."""
    create(bootstrap, "trickle", 2)
    found: dict[str, list[dict[str, int]]] = {name: [] for name in TRIGGERS}
    with trickle(bootstrap, "trickle"):
        for number in range(rounds + 1):
            for name, (kind, manager) in TRIGGERS.items():
                spark.conf.set(MANAGER, manager) if manager else spark.conf.unset(MANAGER)
                figures = triggers(spark, kind, bootstrap, 60)
                found[name] += figures if number else []
    whole = {name: [each["triggerExecution"] for each in figures] for name, figures in found.items()}
    p50 = {name: statistics.median(figures) for name, figures in whole.items()}
    p10 = {name: statistics.quantiles(figures, n=10)[0] for name, figures in whole.items()}
    cells = ", ".join(f"{name} p50 {p50[name]:.0f} ms (p10 {p10[name]:.0f})" for name in TRIGGERS)
    ratios = " ".join(f"{p50['ottla'] / p50[name]:.2f}" for name in ("kafka", "kafka so set"))
    print(f"trigger: {cells}; ratios {ratios}", flush=True)
    for name, figures in found.items():
        parts = {part: statistics.median(each.get(part, 0) for each in figures) for part in figures[0]}
        print(f"trigger, p50 of its parts: {name} {parts}", flush=True)


def triggers(spark: SparkSession, kind: str, bootstrap: str, count: int) -> list[dict[str, int]]:
    """Milliseconds of each part of the later ones of so many: the first compile."""
    stream = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", "trickle")
    checkpoint = tempfile.mkdtemp(prefix="ottla-bench-")
    query = stream.load().writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    took: dict[int, dict[str, int]] = {}
    while len(took) < count:
        assert query.isActive, query.exception()
        for progress in query.recentProgress:
            if progress.numInputRows:
                took[progress.batchId] = dict(progress.durationMs)
        time.sleep(0.2)
    query.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return [took[batch] for batch in sorted(took)[count // 3 :]]


def tasks(directory: Path, bootstrap: str, records: int, rounds: int) -> None:
    """The same read by one, two and four tasks at a time."""
    for cores in (1, 2, 4):
        spark = session(directory, f"local[{cores}]")

        def work(kind: str, spark: SparkSession = spark) -> None:
            reading(spark, kind, bootstrap, "bench").write.format("noop").mode("overwrite").save()

        tell(f"tasks {cores}", records, in_turn(spark, rounds, work))
        spark.stop()


def memory(spark: SparkSession, bootstrap: str, records: int) -> None:
    """The most that a Python worker had in memory while one task read one partition, of a tenth and of the whole."""
    for topic, count in (("small", records // 10), ("big", records)):
        fill(bootstrap, topic, count, 1)
        with resident() as peak:
            reading(spark, "ottla", bootstrap, topic, bytesPerTask="100g").write.format("noop").mode("overwrite").save()
        print(
            f"memory: {count / 1e6:.1f} M records in one partition, worker at most {peak[0] / 2**20:.0f} MiB",
            flush=True,
        )


@contextmanager
def resident() -> Iterator[list[int]]:
    """The most bytes of one Python worker until now."""
    stop, peak = threading.Event(), [0]

    def look() -> None:
        while not stop.wait(0.05):
            for pid in descendants(os.getpid()):
                peak[0] = max(peak[0], _resident_bytes(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def _resident_bytes(pid: int) -> int:
    """Zero of what is no Python worker."""
    try:
        if b"pyspark.daemon" not in Path("/proc", str(pid), "cmdline").read_bytes():
            return 0
        return int(Path("/proc", str(pid), "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default=",".join(ROWS))
    words = parser.parse_args()
    rows = words.rows.split(",")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, ProcessCluster(nodes=1) as cluster:
        directory, bootstrap = Path(home), cluster.bootstrap_servers
        if {"read", "ingest", "tasks"} & set(rows):
            fill(bootstrap, "bench", words.records, PARTITIONS)
        spark = session(directory, "local[2]")
        if "read" in rows:
            read_rows(spark, bootstrap, words.records, words.rounds)
        if "ingest" in rows:
            ingest_rows(spark, bootstrap, words.records, words.rounds)
        if "trigger" in rows:
            trigger_floor(spark, bootstrap, words.rounds)
        if "memory" in rows:
            memory(spark, bootstrap, words.records)
        spark.stop()
        if "tasks" in rows:
            tasks(directory, bootstrap, words.records, words.rounds)


if __name__ == "__main__":
    main()
