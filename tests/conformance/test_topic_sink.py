"""Our topic sink against Apache Kafka: what it asks of a broker is Kafka's own protocol."""

import pytest

from ottla.pipeline.sinks.topic_write import Sent
from ottla.pipeline.wire.producer_errors import RecordTooLargeError
from tests.integration.topic_tasks import TopicTasks, connect, make


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_batch_that_comes_again_is_skipped_on_kafka_too(kafka_node: str, compression: str) -> None:
    topic = f"sink-{compression}"
    make(kafka_node, topic, 1)
    values = [f"{number:01000}" for number in range(100)]
    with connect(kafka_node) as wire:
        assert TopicTasks(kafka_node, topic, wire, compression=compression).write(0, *values) == Sent(100)
    with connect(kafka_node) as wire:
        sink = TopicTasks(kafka_node, topic, wire, compression=compression)
        assert sink.write(0, *values) == Sent(100, skipped=True)
        assert sink.write(1, "last") == Sent(1)
        assert sink.read(101) == sorted([*values, "last"])
        if compression == "none":
            with pytest.raises(RecordTooLargeError):
                sink.write(2, "x" * 30_000)
