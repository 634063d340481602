"""The source reads Apache Kafka as it reads Ottla."""

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ottla.pipeline.source.batch import batch_plan
from ottla.pipeline.source.columns import layout_of
from ottla.pipeline.source.errors import LossError
from ottla.pipeline.source.offsets import from_json
from ottla.pipeline.source.options import parse_options
from ottla.pipeline.source.planning import Task
from ottla.pipeline.source.stream import Stream
from ottla.pipeline.source.task import TaskReader
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.groups import commit_offsets, committed_offsets
from ottla.pipeline.wire.offsets import end_of_epochs
from ottla.testing.processes import wait_for
from tests.conformance.conftest import fill

NODES = ["ottla_node", "kafka_node"]


@pytest.fixture(params=NODES)
def bootstrap(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def options_of(bootstrap: str, topic: str, *, streaming: bool = False, **more: str) -> Any:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    return parse_options(given | more, streaming=streaming)


def values(options: Any, tasks: Iterable[Task]) -> list[int]:
    layout, schema = layout_of(options, None)
    reader = TaskReader(options.client, layout, schema, options.fails_on_loss)
    return [int(value) for task in tasks for batch in reader.read(task) for value in batch["value"].to_pylist()]


def end_ids(end: dict[str, Any]) -> set[bytes]:
    return set(from_json(end).ids.values())


def is_decided(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether the transactions have their markers: Kafka answers EndTxn before it writes them."""
    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    committed, written = (
        [each.result(60).offset for each in admin.list_offsets(asked, isolation_level=level).values()]
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return committed == written


def test_a_batch_reads_what_is_committed_from_a_time_on(bootstrap: str) -> None:
    fill(bootstrap, "source-batch", 2, 100)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "source-batch"})
    producer.init_transactions(30)
    for first, commits in ((100, True), (200, False), (300, True)):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce("source-batch", str(number), partition=number % 2)
        producer.flush()
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    wait_for(lambda: is_decided(bootstrap, "source-batch", 2), "the markers of all transactions")
    options = options_of(bootstrap, "source-batch", startingTimestamp=str(1_700_000_000_000 + 1_000 * 40))
    with Cluster(options.client) as cluster:
        found = values(options, batch_plan(cluster, options))

    assert sorted(found) == [*range(40, 110), *range(300, 310)]


def test_a_stream_goes_on_and_knows_a_topic_that_was_made_anew(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    fill(bootstrap, "source-stream", 2, 50)
    options = options_of(
        bootstrap, "source-stream", streaming=True, startingOffsets="earliest", maxOffsetsPerTrigger="30"
    )
    with Cluster(options.client) as cluster:
        stream = Stream(cluster, options)
        start = stream.initial()
        first = stream.latest(start)
        end = stream.latest(first)
        found = values(options, [*stream.tasks(start, first), *stream.tasks(first, end)])
        admin.delete_topics(["source-stream"])["source-stream"].result(60)
        admin.create_topics([NewTopic("source-stream", 2, 1)])["source-stream"].result(60)

        assert sorted(found) == list(range(50))
        old = end_ids(end)
        wait_for(
            lambda: {topic.id for topic in cluster.topics(["source-stream"]).values()} not in (set(), old),
            "a new topic",
        )
        with pytest.raises(LossError, match="topic source-stream was deleted and made anew"):
            stream.latest(end)


def test_groups_and_epochs_are_spoken_of(bootstrap: str) -> None:
    fill(bootstrap, "source-groups", 1, 5)
    options = options_of(bootstrap, "source-groups")
    with Cluster(options.client) as cluster:
        commit_offsets(cluster, "source-group", {("source-groups", 0): 3}, "batch 1")

        assert committed_offsets(cluster, "source-group")["source-groups", 0].offset == 3
        assert end_of_epochs(cluster, {("source-groups", 0): 0})["source-groups", 0].end_offset == 5
