"""Three nodes are restarted one after another under load: no application of a client with default settings hears of it."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing.processes import ProcessCluster
from tests.benchmarks.clusters import OttlaCluster
from tests.benchmarks.rolling_restart import CLIENTS, PARTITIONS, TOPIC, clients, make_topic, roll

SETTINGS = {"broker.heartbeat.interval.ms": "200"}
"""A node that leaves waits for one heartbeat of each other: two seconds, by default."""
RATE = 100


def test_a_rolling_restart_gives_an_application_no_error_and_loses_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(
        Path(__file__).parents[2]
    )  # clients are processes of their own, and find themselves there
    with ProcessCluster(nodes=3, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        make_topic(admin)
        cluster.wait_for_topic(TOPIC, PARTITIONS)
        with clients(cluster.bootstrap_servers, CLIENTS, RATE) as at_work:
            roll(OttlaCluster(cluster), admin)
            seen = at_work.end()

    assert {who: each.errors for who, each in seen.items() if each.errors} == {}
    assert sorted(seen) == [f"{library} {does}" for library in sorted(CLIENTS) for does in ("consume", "produce")]
    assert all(len(each.records) > RATE for each in seen.values())
