"""SIGKILL at random moments of the driver, of executors, of their Python workers, of brokers and of the active controller:
a table has each record once, at its offset, and so has a topic for who reads what is committed."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing.processes import ProcessCluster
from tests.spark.kills.course import VICTIMS, Course
from tests.spark.kills.feeder import Feeder
from tests.spark.kills.job import Job
from tests.spark.records import create
from tests.spark.session import SHORT_LIVED, spark_home

PARTITIONS = 4
PER_SECOND = 1_000
TWO_EXECUTORS = "local-cluster[2,1,1024]"
"""A driver and two executors, each a JVM of its own."""
ONE_PROCESS = "local[2,4]"
"""The driver is the executor; a task may fail three times."""
THIRTY = (3, 4, 5)
"""Seeds of ten kills each: whoever has five minutes can run one."""


@dataclass(frozen=True)
class Place:
    """Where a job lives."""

    directory: Path
    cluster: ProcessCluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def ingest(self, master: str, table: str) -> Job:
        """Compacts, too, all the time."""
        words = ["-b", self.bootstrap, "--topics", "numbers", "--table", table, "--compact-every", "7"]
        words += ["--trigger", "200 milliseconds", "--max-offsets-per-trigger", "20000", "--master", master]
        words += ["--option", f"minPartitions={PARTITIONS}"]
        words += ["--checkpoint", str(self.directory / "checkpoint"), "--spark-log", str(self.directory / "spark.log")]
        words += ["--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED}"]
        return self._job("ottla.cli.main", "spark", "ingest", *words)

    def copying(self, master: str, to_topic: str, table: str) -> Job:
        words = (master, str(self.directory), self.bootstrap, "numbers", to_topic, table)
        return self._job("tests.spark.kills.copying", *words)

    def _job(self, module: str, *words: str) -> Job:
        environment = os.environ | {"SPARK_HOME": str(spark_home(self.directory)), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-m", module, *words]
        return Job(command, self.directory / "checkpoint", self.directory / "job.log", environment)


@pytest.fixture
def place(cluster: ProcessCluster) -> Iterator[Place]:
    """A short path: Unix sockets have their place in it."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-kills-"))
    yield Place(directory, cluster)
    shutil.rmtree(directory, ignore_errors=True)


def survive(
    place: Place, job: Job, course: Course, moments: int, rows: Callable[[], int]
) -> dict[tuple[int, int], int]:
    """What the topic has in the end: the number at each partition and offset. By then ``rows`` of it have arrived, at least."""
    create(place.bootstrap, "numbers", PARTITIONS, {"min.insync.replicas": "2"})
    try:
        with Feeder(place.bootstrap, "numbers", PARTITIONS, PER_SECOND) as feeder:
            course.run(moments)
        assert feeder.failures == []
        course.finish(lambda: rows() >= len(feeder.acknowledged))
    finally:
        print(f"{job.starts} starts, {job.batches()} batches\n{course.history()}")  # noqa: T201 - for who looks why it failed
        if job.runs:
            job.kill()
    assert_contiguous(feeder.acknowledged)
    return feeder.acknowledged


def assert_contiguous(at: dict[tuple[int, int], int]) -> None:
    """No offset is left out: a producer with idempotence leaves no gap."""
    for partition, places in groupby(sorted(at), key=lambda place: place[0]):
        offsets = [offset for _, offset in places]
        assert offsets == list(range(len(offsets))), f"gaps in partition {partition}"


def table_of(path: str) -> list[tuple[int, int, int]]:
    """Partition, offset and number of each row."""
    table = deltalake.DeltaTable(path).to_pyarrow_table(columns=["partition", "offset", "value"])
    columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
    return sorted((partition, offset, int(value)) for partition, offset, value in zip(*columns, strict=True))


def count_of(path: str) -> int:
    """Rows, by what the table says of its files."""
    if not deltalake.DeltaTable.is_deltatable(path):
        return 0
    return deltalake.DeltaTable(path).count()


def check_table(table: str, written: dict[tuple[int, int], int]) -> None:
    assert table_of(table) == sorted((partition, offset, number) for (partition, offset), number in written.items())


def check_ingest(place: Place, master: str, seed: int, moments: int, victims: tuple[str, ...]) -> None:
    table = str(place.directory / "table")
    job = place.ingest(master, table)
    written = survive(place, job, Course(place.cluster, job, seed, victims), moments, lambda: count_of(table))
    check_table(table, written)


def check_both(place: Place, master: str, seed: int, moments: int, victims: tuple[str, ...]) -> None:
    """Topic and table, by the streams of one driver."""
    create(place.bootstrap, "copy", PARTITIONS, {"min.insync.replicas": "2"})
    table = str(place.directory / "table")
    job = place.copying(master, "copy", table)
    with Committed(place.bootstrap, "copy") as copy:
        course = Course(place.cluster, job, seed, victims)
        written = survive(place, job, course, moments, lambda: min(copy.count(), count_of(table)))
        copy.read_to_the_end()
    check_table(table, written)
    for partition in range(PARTITIONS):
        expected = [number for (each, _), number in sorted(written.items()) if each == partition]
        assert copy.numbers[partition] == expected


class Committed:
    """A topic of numbers as who reads what is committed sees it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False}
        self._consumer = Consumer(settings | {"isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.numbers: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}

    def __enter__(self) -> "Committed":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def count(self) -> int:
        self._take(0.2)
        return sum(map(len, self.numbers.values()))

    def read_to_the_end(self) -> None:
        """What comes after the last that was expected is too much."""
        while self._take(3.0):
            pass

    def _take(self, timeout_s: float) -> bool:
        messages = [each for each in self._consumer.consume(10_000, timeout_s) if not each.error()]
        for message in messages:
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            self.numbers[partition].append(int(value))
        return bool(messages)


@pytest.mark.long
def test_ingest_lands_each_record_once_whoever_is_killed(place: Place) -> None:
    check_ingest(place, ONE_PROCESS, seed=1, moments=4, victims=("driver", "worker", "broker", "controller"))


def test_topic_and_table_have_each_record_once_whoever_is_killed(place: Place) -> None:
    check_both(place, ONE_PROCESS, seed=2, moments=3, victims=("driver", "worker", "broker"))


@pytest.mark.long
@pytest.mark.parametrize("seed", THIRTY)
def test_ingest_survives_thirty_kills(place: Place, seed: int) -> None:
    check_ingest(place, TWO_EXECUTORS, seed, moments=10, victims=VICTIMS)


@pytest.mark.long
@pytest.mark.parametrize("seed", THIRTY)
def test_topic_and_table_survive_thirty_kills(place: Place, seed: int) -> None:
    check_both(place, TWO_EXECUTORS, seed, moments=10, victims=VICTIMS)
