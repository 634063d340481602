"""Networks that are cut, slow or choked, through a real Toxiproxy server."""

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.chaos.cluster import ChaosCluster
from ottla.testing.chaos.links import CLIENTS
from ottla.testing.chaos.proxies import DOWN
from ottla.testing.history import AcknowledgedProducer
from ottla.testing.processes import wait_for

TOPIC = "history"


def make_topic(cluster: ChaosCluster) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(60)
    wait_for(lambda: len(leader_and_isr(admin)[1]) == 3, "the topic to be known")
    return admin


def leader_and_isr(admin: AdminClient) -> tuple[int, list[int]]:
    """As some broker knows them: each learns of a change a moment after it is committed."""
    partition = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.get(0)
    return (partition.leader, list(partition.isrs)) if partition else (-1, [])


def goes_on(history: AcknowledgedProducer) -> bool:
    return bool(history.times) and history.times[-1] > time.monotonic() - 0.5


def test_a_leader_that_nobody_reaches_for_a_while_loses_nothing(proxied: ChaosCluster) -> None:
    """Clients and followers lose the leader; its way out, and so its session, lives on. Healed, all go on by themselves."""
    admin = make_topic(proxied)
    leader, _ = leader_and_isr(admin)
    links = [each for each in proxied.links if each.target == leader]
    with AcknowledgedProducer(proxied.bootstrap_servers, TOPIC) as history:
        wait_for(lambda: len(history.times) > 50, "the producer to run")
        proxied.cut(links)
        sent = history.sent
        wait_for(lambda: history.sent > sent + 300, "a second and a half of records to pile up")
        proxied.heal(links)
        healed = time.monotonic()
        wait_for(lambda: bool(history.times) and history.times[-1] > healed + 1, "the producer to go on", timeout_s=60)
        wait_for(lambda: len(leader_and_isr(admin)[1]) == 3, "the ISR to be full", timeout_s=60)
    assert history.failures == []
    history.check()


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("latency", {"latency": 100, "jitter": 50}),
        ("bandwidth", {"rate": 64}),
        ("slicer", {"average_size": 7, "size_variation": 5, "delay": 50}),
    ],
)
def test_a_bad_network_slows_the_producer_and_loses_nothing(
    proxied: ChaosCluster, kind: str, attributes: dict[str, int]
) -> None:
    make_topic(proxied)
    with AcknowledgedProducer(proxied.bootstrap_servers, TOPIC, interval_s=0.02) as history:
        wait_for(lambda: len(history.times) > 20, "the producer to run")
        links = proxied.links_of_kind(CLIENTS)
        proxied.give(links, "bad", kind, DOWN, attributes)
        began = time.monotonic()
        wait_for(lambda: bool(history.times) and history.times[-1] > began + 2, "the producer to go on", timeout_s=60)
        proxied.take(links, "bad")
        wait_for(lambda: goes_on(history), "the producer to run freely again", timeout_s=60)
    assert history.failures == []
    history.check()
