"""Our source and Spark's own connector find the same in the same topics, of Ottla and of Apache Kafka."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline import register
from ottla.testing.processes import ProcessCluster, wait_for
from tests.spark.records import AT_ONCE, BEGAN, EVERY, Row, count_up, create, fill, in_order, rows_of, written_in

BOTH = ("kafka", "ottla")
"""Spark's own, and ours."""


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def read(session: SparkSession, kind: str, broker: str, topic: str, **options: str) -> DataFrame:
    reader = session.read.format(kind).option("kafka.bootstrap.servers", broker).option("subscribe", topic)
    return reader.options(**AT_ONCE, **options).load()


def read_by_both(session: SparkSession, broker: str, topic: str, **options: str) -> list[Row]:
    """What one of them finds, after a look whether the other finds just that."""
    theirs, ours = (read(session, kind, broker, topic, **options) for kind in BOTH)
    assert ours.schema == theirs.schema
    rows = rows_of(ours)
    assert rows == rows_of(theirs)
    return rows


def test_both_read_the_same_rows_of_what_is_committed(session: SparkSession, broker: str, topic: str) -> None:
    committed = fill(broker, topic)
    options = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    assert written_in(read_by_both(session, broker, topic, **options)) == in_order(committed)


def test_both_read_the_same_rows_of_all_that_was_written(session: SparkSession, broker: str, topic: str) -> None:
    committed = fill(broker, topic)
    assert len(read_by_both(session, broker, topic)) == len(committed) + 30


def test_both_find_the_same_offsets_by_time_and_by_number(session: SparkSession, broker: str, topic: str) -> None:
    create(broker, topic, 2)
    count_up(broker, topic, 100, partitions=2)
    from_ms, to_ms = (str(int((BEGAN + number * EVERY).timestamp() * 1000)) for number in (20, 60))
    by_time = read_by_both(session, broker, topic, startingTimestamp=from_ms, endingTimestamp=to_ms)
    assert sorted(int(row[4] or b"-1") for row in by_time) == list(range(20, 60))
    starting, ending = json.dumps({topic: {"0": 5, "1": -2}}), json.dumps({topic: {"0": -1, "1": 3}})
    assert len(read_by_both(session, broker, topic, startingOffsets=starting, endingOffsets=ending)) == 45 + 3


def stream(session: SparkSession, kind: str, broker: str, topic: str, directory: Path) -> None:
    """All there is now, into files, 40 records a batch."""
    source = session.readStream.format(kind).option("kafka.bootstrap.servers", broker).option("subscribe", topic)
    frame = source.options(**AT_ONCE, startingOffsets="earliest", maxOffsetsPerTrigger="40").load()
    writer = frame.writeStream.format("parquet").option("path", str(directory / "table"))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert query.exception() is None


def test_one_goes_on_from_the_checkpoint_of_the_other(
    session: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 2)
    for number, kind in enumerate(("kafka", "ottla", "kafka")):
        count_up(bootstrap, topic, 100, partitions=2, first=100 * number)
        stream(session, kind, bootstrap, topic, tmp_path)
    rows = session.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(int(row.value) for row in rows) == list(range(300))
    assert len({(row.partition, row.offset) for row in rows}) == 300


@contextmanager
def open_transaction(broker: str, topic: str, records: int) -> Iterator[None]:
    """Aborted in the end."""
    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"{topic}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"-1")
    assert producer.flush(30) == 0
    yield
    producer.abort_transaction(30)


def test_both_stop_where_a_transaction_is_open(session: SparkSession, broker: str, topic: str) -> None:
    create(broker, topic)
    count_up(broker, topic, 10)
    with open_transaction(broker, topic, 5):
        count_up(broker, topic, 10, first=10)  # behind it
        committed = read_by_both(session, broker, topic, **{"kafka.isolation.level": "read_committed"})
        assert [int(row[4] or b"-1") for row in committed] == list(range(10))
        assert len(read_by_both(session, broker, topic)) == 25


@pytest.mark.parametrize("loss", ["true", "false"])
def test_both_say_what_is_gone_or_go_on_behind_it(session: SparkSession, broker: str, topic: str, loss: str) -> None:
    create(broker, topic)
    count_up(broker, topic, 100)
    admin = AdminClient({"bootstrap.servers": broker})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 40)]).values()
    deleted.result(60)
    options = {"startingOffsets": json.dumps({topic: {"0": 0}}), "failOnDataLoss": loss}
    if loss == "true":
        for kind in BOTH:
            with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)failOnDataLoss|data.loss|no longer"):
                read(session, kind, broker, topic, **options).collect()
    else:
        assert [int(row[4] or b"-1") for row in read_by_both(session, broker, topic, **options)] == list(range(40, 100))


def test_both_read_across_what_compaction_removed(session: SparkSession, node: ProcessCluster, topic: str) -> None:
    bootstrap = node.bootstrap_servers
    quick = {"segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"}
    create(bootstrap, topic, config=quick | {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 10})
    for number in range(3000):
        producer.produce(topic, b"x" * 1000, str(number % 50 if number % 100 else number))
    assert producer.flush(30) == 0
    open_at = max(int(file.stem) for file in node.directory(node.nodes[0].node_id, topic).glob("*.log"))

    def is_compacted() -> bool:
        """All but the segment that is written to: from here on both find the same, whoever reads first."""
        keys = [row.key for row in read(session, "kafka", bootstrap, topic).where(f"offset < {open_at}").collect()]
        return len(keys) == len(set(map(bytes, keys)))

    wait_for(is_compacted, "closed segments to be compacted", 60)
    rows = read_by_both(session, bootstrap, topic, minPartitions="3")
    assert rows[-1][2] == 2999
    assert len(rows) < 2500
