"""The jobs by spark-submit on clusters: executors in JVMs of their own, whose Python has numpy and pyarrow and nothing else."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import Producer

from tests.spark import bare_python
from tests.spark.records import BEGAN, EVERY, create
from tests.spark.standalone import Standalone, Submission

RECORDS = 1_200
CARRIERS = ("AA", "DL", "UA")
SCHEMA = "carrier string, delay double"


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


def ingest_and_aggregate(submission: Submission, master: str, bootstrap: str, topic: str, table: str) -> None:
    """What is landed is all that was written; the windows count it."""
    fill(bootstrap, topic)
    common = ("--topics", topic, "-b", bootstrap, "--trigger", "available-now", "--from", "earliest")
    value = ("--value-format", "json", "--value-schema", SCHEMA)
    run(submission, master, "ingest", *common, *value, "--table", table, "--max-offsets-per-trigger", "500")
    found = deltalake.DeltaTable(table).to_pyarrow_table(columns=["carrier", "partition", "offset"]).to_pylist()
    assert Counter(row["carrier"] for row in found) == dict.fromkeys(CARRIERS, RECORDS // 3) | {"-": 4}
    assert len({(row["partition"], row["offset"]) for row in found}) == RECORDS + 4
    words = ("--window", "10 minutes", "--watermark", "1 minute", "--by", "carrier", "--measure", "count(*) as count")
    run(submission, master, "aggregate", *common, *value, *words, "--table", f"{table}-windows")
    windows = deltalake.DeltaTable(f"{table}-windows").to_pyarrow_table().to_pylist()
    assert [(row["carrier"], row["count"]) for row in windows if row["carrier"] != "-"] != []
    assert {(row["carrier"], row["count"]) for row in windows if row["carrier"] != "-"} == {
        (each, 200) for each in CARRIERS
    }
    assert len(windows) == 2 * len(CARRIERS)


def run(submission: Submission, master: str, *words: str) -> None:
    ended = submission.submit(master, *words)
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-6000:]}"


def test_executors_have_numpy_and_pyarrow_and_nothing_else(submission: Submission) -> None:
    modules = ("numpy", "pyarrow", "pyarrow.parquet", "pandas", "msgspec", "ottla", "pyspark", "deltalake", "click")
    assert [name for name in modules if bare_python.imports(submission.executor, name)] == list(modules[:3])


def test_local_cluster_runs_ingest_and_aggregate(
    submission: Submission, bootstrap: str, topic: str, table: str
) -> None:
    ingest_and_aggregate(submission, "local-cluster[2,1,1024]", bootstrap, topic, table)


@pytest.mark.long
def test_a_standalone_master_with_two_workers_runs_ingest_and_aggregate(
    submission: Submission, bootstrap: str, topic: str, table: str
) -> None:
    with Standalone(submission.directory) as cluster:
        ingest_and_aggregate(submission, cluster.master, bootstrap, topic, table)
