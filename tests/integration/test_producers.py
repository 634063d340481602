"""`ottla producers` beside a real producer."""

import json
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Producer

from ottla.cli.main import cli
from ottla.testing.processes import ProcessCluster, wait_for


def rows(cluster: ProcessCluster, topic: str, *more: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(
        cli, ["producers", "describe", topic, "-b", cluster.bootstrap_servers, "-o", "json", *more]
    )
    assert done.exception is None, done.exception
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_an_open_transaction_is_shown_until_it_ends(cluster: ProcessCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in (b"one", b"two"):
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    cluster.wait_for_topic(topic)
    (row,) = rows(cluster, topic)
    assert (row["partition"], row["last sequence"], row["transaction begins at"]) == (0, 1, 0)
    producer.abort_transaction(30)

    def has_ended() -> bool:
        """Its marker is written a moment after the producer was told."""
        (row,) = rows(cluster, topic, "--partition", "0")
        return row["transaction begins at"] is None and row["coordinator epoch"] is not None

    wait_for(has_ended, "the transaction's marker")
