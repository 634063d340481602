"""kill -9 of real processes under a running producer: nothing acknowledged is lost or doubled, and it goes on by itself."""

import signal
import time

from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from ottla.testing.history import AcknowledgedProducer
from ottla.testing.processes import ProcessCluster, wait_for

SILENCE_MAX_S = 8.0
"""Below broker.session.timeout.ms (9 s): a death shows by its connection, not by its silence. A machine with nothing else to do
needs a second or less; this is for a busy one."""

TOPIC = "history"


def partition_state(admin: AdminClient) -> tuple[int, list[int]]:
    """Leader and in-sync replicas, as some broker knows them: each learns of a change a moment after it is committed."""
    partition = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.get(0)
    return (partition.leader, list(partition.isrs)) if partition else (-1, [])


def active_controller(bootstrap: str) -> int:
    """-1 while nobody leads."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    topics = admin.describe_metadata_quorum()["topics"]
    admin.close()
    return topics[0]["partitions"][0]["leader_id"] if topics else -1


def kill_and_restart(cluster: ProcessCluster, admin: AdminClient, history: AcknowledgedProducer, victim: int) -> None:
    killed = time.monotonic()
    cluster.kill(victim)
    wait_for(lambda: bool(history.times) and history.times[-1] > killed + 0.5, "the producer to go on")
    silence = history.longest_silence_s(killed)
    assert silence <= SILENCE_MAX_S, f"node {victim} killed: no acknowledgement for {silence:.2f} s"
    cluster.start(victim)
    wait_for(lambda: len(partition_state(admin)[1]) == 3, "the ISR to be full")


def test_leader_controller_and_follower_die_one_after_another() -> None:
    with ProcessCluster(nodes=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topic = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(60)
        with AcknowledgedProducer(cluster.bootstrap_servers, TOPIC) as history:
            wait_for(lambda: len(history.times) > 100, "the producer to run")
            kill_and_restart(cluster, admin, history, partition_state(admin)[0])
            wait_for(lambda: active_controller(cluster.bootstrap_servers) > 0, "an active controller")
            kill_and_restart(cluster, admin, history, active_controller(cluster.bootstrap_servers))
            wait_for(lambda: partition_state(admin)[0] > 0, "a leader")
            leader, isr = partition_state(admin)
            kill_and_restart(cluster, admin, history, next(node for node in isr if node != leader))
        assert history.failures == []
        history.check()


def test_a_leader_that_is_frozen_and_wakes_up_acknowledges_nothing_more() -> None:
    """SIGSTOP outlives the broker session: another leader takes over, and the old one finds itself deposed."""
    with ProcessCluster(
        nodes=3, settings={"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}
    ) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(60)
        with AcknowledgedProducer(cluster.bootstrap_servers, TOPIC) as history:
            wait_for(lambda: len(history.times) > 100, "the producer to run")
            frozen = partition_state(admin)[0]
            cluster.kill(frozen, signal.SIGSTOP)
            stopped = time.monotonic()
            # librdkafka gives a silent broker up only after its request timed out, unless the connection breaks.
            wait_for(lambda: partition_leader_moved(cluster, frozen), "another leader")
            cluster.kill(frozen, signal.SIGCONT)
            wait_for(lambda: bool(history.times) and history.times[-1] > stopped + 4, "the producer to go on")
            wait_for(lambda: len(partition_state(admin)[1]) == 3, "the ISR to be full")
        assert history.failures == []
        history.check()


def partition_leader_moved(cluster: ProcessCluster, old: int) -> bool:
    """Whether a broker other than the frozen one says that another leads."""
    other = cluster.node(old % 3 + 1)
    admin = AdminClient({"bootstrap.servers": f"localhost:{other.port}"})
    return partition_state(admin)[0] not in (old, -1)
