"""`ottla transactions` beside a producer that knows nothing of it."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.transactions import transactions
from ottla.testing.processes import ProcessCluster

PARTITIONS = 2


def test_a_transaction_that_is_left_open_is_shown_and_aborted(cluster: ProcessCluster, topic: str) -> None:
    def ottla(*words: str) -> list[dict[str, Any]]:
        told = CliRunner().invoke(transactions, [*words, "-b", cluster.bootstrap_servers, "-o", "json"])
        assert told.exception is None, told.exception
        found: list[dict[str, Any]] = json.loads(told.output)
        return found

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
    cluster.wait_for_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(PARTITIONS):
        producer.produce(topic, b"never committed", partition=number)
    assert producer.flush(60) == 0
    assert (topic, "Ongoing") in [(each["transactional id"], each["state"]) for each in ottla("list")]
    (row,) = ottla("describe", topic)
    assert row["partitions"] == [f"{topic}-{number}" for number in range(PARTITIONS)]
    assert row["open seconds"] < 60
    assert ottla("abort", topic, "--dry-run")[0]["done"] == "would be aborted"
    assert ottla("abort", topic)[0]["done"] == "aborted"
    assert ottla("abort", topic)[0]["done"].startswith("nothing")
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)
