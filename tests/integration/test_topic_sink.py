"""The broker's side of a topic sink: what a batch committed with its rows, and what a batch that comes again finds."""

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.pipeline.sinks.topic_options import topic_options
from ottla.pipeline.sinks.topic_write import Sent
from ottla.pipeline.wire.groups import committed_offsets
from ottla.pipeline.wire.producer import Producer
from ottla.pipeline.wire.producer_errors import FencedError, RecordTooLargeError
from ottla.pipeline.wire.producer_transaction import Offset
from ottla.testing.processes import ProcessCluster, wait_for
from tests.integration.topic_tasks import PARTITIONS, TopicTasks, connect, make


@pytest.fixture
def sink(cluster: ProcessCluster, topic: str) -> Iterator[TopicTasks]:
    make(cluster.bootstrap_servers, topic, 3)
    cluster.wait_for_topic(topic, PARTITIONS)
    with connect(cluster.bootstrap_servers) as wire:
        yield TopicTasks(cluster.bootstrap_servers, topic, wire)


def test_a_batch_that_comes_again_finds_its_offset_and_is_skipped(sink: TopicTasks) -> None:
    values = [f"row-{number}" for number in range(50)]
    assert sink.write(6, *values) == Sent(50)
    group = f"ottla.{sink.topic}.0"
    wait_for(lambda: bool(committed_offsets(sink.wire, group)), "the transaction's markers")
    ((place, committed),) = committed_offsets(sink.wire, group).items()
    assert place[0] == sink.topic
    assert committed.offset == 7
    with connect(sink.bootstrap) as another:
        sink.wire = another  # a new driver, whose connections know nothing
        assert sink.write(6, *values) == Sent(50, skipped=True)
        assert sink.write(7, "last") == Sent(1)
    assert sink.read(51) == sorted([*values, "last"])


def test_an_offset_of_an_aborted_transaction_does_not_count(sink: TopicTasks) -> None:
    """Killed before the end: the coordinator has rows and offset, and commits neither."""
    name = f"ottla.{sink.topic}.0"
    options = topic_options({"kafka.bootstrap.servers": sink.bootstrap})
    killed = Producer(sink.wire, options.producer, name)
    killed.begin()
    killed.send(pa.record_batch({"value": ["never seen"]}), sink.topic)
    killed.flush()
    transaction = killed.transaction
    assert transaction is not None
    transaction.commit_offset(Offset(name, sink.topic, 0, 1, ""))
    assert sink.write(0, "a") == Sent(1)
    with pytest.raises(FencedError, match="Another attempt has taken over"):
        transaction.end(committed=True)
    assert sink.read(1) == ["a"]


def test_tasks_beside_each_other_each_have_a_transaction(sink: TopicTasks) -> None:
    def run(task: int) -> None:
        with connect(sink.bootstrap) as own:
            mine = TopicTasks(sink.bootstrap, sink.topic, own)
            for number in range(3):
                mine.write(number, f"{number}-{task}", task=task)

    threads = [threading.Thread(target=run, args=(task,)) for task in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.read(12) == sorted(f"{number}-{task}" for number in range(3) for task in range(4))


def test_a_topic_that_takes_less_gets_smaller_batches(sink: TopicTasks) -> None:
    """The topic takes 20 kB a batch, the client would send 512."""
    values = [f"{number:01000}" for number in range(200)]
    assert sink.write(0, *values) == Sent(200)
    assert sink.read(200) == values
    with pytest.raises(RecordTooLargeError, match=r"the topic's max\.message\.bytes is smaller"):
        sink.write(1, "x" * 30_000)


def test_headers_times_and_partitions_arrive_as_they_are(sink: TopicTasks) -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch(
        {
            "key": pa.array([None, b"k", b"k"]),
            "value": pa.array([b"a", None, b"c"]),
            "partition": pa.array([2, 0, 2], pa.int32()),
            "headers": pa.array([[("h", b"1"), ("h", None)], None, []], header),
            "timestamp": pa.array([1_700_000_000_123_999, 1_600_000_000_000_000, None], pa.timestamp("us", "UTC")),
        }
    )
    before_ms = int(time.time() * 1000)
    with Producer.of({"bootstrap.servers": sink.bootstrap, "compression.type": "zstd"}) as producer:
        producer.send(rows, sink.topic)
    consumer = Consumer({"bootstrap.servers": sink.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(sink.topic, index, 0) for index in range(PARTITIONS)])
    found = sorted(consumer.consume(3, 30), key=lambda message: (message.partition(), message.offset()))
    consumer.close()
    assert [(each.partition(), each.key(), each.value()) for each in found] == [
        (0, b"k", None),
        (2, None, b"a"),
        (2, b"k", b"c"),
    ]
    assert [each.headers() for each in found] == [None, [("h", b"1"), ("h", None)], None]
    times = [each.timestamp()[1] for each in found]
    assert times[:2] == [1_600_000_000_000, 1_700_000_000_123]
    assert times[2] >= before_ms
