"""The jobs by spark-submit on clusters: executors in JVMs of their own, whose Python has numpy and pyarrow and nothing else."""

import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import Producer

from tests.spark import bare_python
from tests.spark.records import BEGAN, EVERY, create
from tests.spark.standalone import Standalone, Submission

pytestmark = pytest.mark.long
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
RECORDS = 1_200
CARRIERS = ("AA", "DL", "UA")
SCHEMA = "carrier string, delay double"
Submit = Callable[..., subprocess.CompletedProcess[str]]
Job = Callable[[Submit, str, str, str, str], None]


@pytest.fixture(scope="module")
def submission() -> Iterator[Submission]:
    """A short path: Unix sockets have their place in it."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-submit-"))
    yield Submission.prepare(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def table(submission: Submission, topic: str) -> str:
    return str(submission.directory / f"table-{topic}")


def fill(bootstrap: str, topic: str) -> None:
    """A record a second, in turn of each carrier, and one at the end that moves the watermark far on."""
    create(bootstrap, topic, 4)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(RECORDS):
        value = {"carrier": CARRIERS[number % 3], "delay": float(number % 60)}
        send(producer, topic, number, number, value)
    for partition in range(4):
        send(producer, topic, partition, 10 * RECORDS, {"carrier": "-", "delay": 0.0})
    assert producer.flush(60) == 0


def send(producer: Producer, topic: str, partition: int, second: int, value: dict[str, object]) -> None:
    at_ms = int((BEGAN + second * EVERY).timestamp() * 1000)
    producer.produce(topic, json.dumps(value), partition=partition % 4, timestamp=at_ms)


def read_words(bootstrap: str, topic: str) -> tuple[str, ...]:
    read = ("--topics", topic, "-b", bootstrap, "--trigger", "available-now", "--from", "earliest")
    return (*read, "--value-format", "json", "--value-schema", SCHEMA)


def ingest(submit: Submit, master: str, bootstrap: str, topic: str, table: str) -> None:
    """What is landed is all that was written."""
    words = ("--table", table, "--max-offsets-per-trigger", "700")
    run(submit, master, "ingest", *read_words(bootstrap, topic), *words)
    found = deltalake.DeltaTable(table).to_pyarrow_table(columns=["carrier", "partition", "offset"]).to_pylist()
    assert Counter(row["carrier"] for row in found) == dict.fromkeys(CARRIERS, RECORDS // 3) | {"-": 4}
    assert len({(row["partition"], row["offset"]) for row in found}) == RECORDS + 4


def aggregate(submit: Submit, master: str, bootstrap: str, topic: str, table: str) -> None:
    """Two windows of each carrier count what was written."""
    words = ("--window", "10 minutes", "--watermark", "1 minute", "--by", "carrier", "--measure", "count(*) as count")
    run(submit, master, "aggregate", *read_words(bootstrap, topic), *words, "--table", table)
    windows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    counts = Counter((row["carrier"], row["count"]) for row in windows)
    assert counts == {(carrier, 200): 2 for carrier in CARRIERS}


def run(submit: Submit, master: str, *words: str) -> None:
    ended = submit(master, *words)
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-6000:]}"


def test_executors_have_numpy_and_pyarrow_and_nothing_else(submission: Submission, tmp_path: Path) -> None:
    executor = tmp_path / "work" / "app-1"
    executor.mkdir(parents=True)
    modules = ("numpy", "pyarrow", "pyarrow.parquet", "pandas", "msgspec", "ottla", "pyspark", "deltalake", "click")
    has = [name for name in modules if bare_python.imports(submission.interpreter, name, executor)]
    assert has == list(modules[:3])
    assert bare_python.imports(submission.interpreter, "deltalake", tmp_path)


def test_local_cluster_runs_ingest(submission: Submission, bootstrap: str, topic: str, table: str) -> None:
    fill(bootstrap, topic)
    ingest(submission.submit, LOCAL_CLUSTER, bootstrap, topic, table)


def test_local_cluster_runs_aggregate(submission: Submission, bootstrap: str, topic: str, table: str) -> None:
    fill(bootstrap, topic)
    aggregate(submission.submit, LOCAL_CLUSTER, bootstrap, topic, table)


@pytest.fixture(scope="module")
def standalone(submission: Submission) -> Iterator[Standalone]:
    with Standalone(submission.directory) as cluster:
        yield cluster


@pytest.mark.parametrize("job", [ingest, aggregate])
def test_a_standalone_master_with_two_workers_runs(
    job: Job, standalone: Standalone, submission: Submission, bootstrap: str, topic: str, table: str
) -> None:
    fill(bootstrap, topic)
    job(submission.submit, standalone.master, bootstrap, topic, table)


@pytest.mark.parametrize("job", [ingest, aggregate])
def test_an_installed_package_runs_on_a_standalone_master(
    job: Job, standalone: Standalone, submission: Submission, bootstrap: str, topic: str, table: str
) -> None:
    """`ottla spark JOB --master spark://...` sends along what the executors lack."""
    fill(bootstrap, topic)
    job(submission.call, standalone.master, bootstrap, topic, table)
