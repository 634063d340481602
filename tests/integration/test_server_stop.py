"""What a node leaves behind in a process that lives on, such as a test's."""

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker import server
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.log.directories.checkpoints import CleanShutdown
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.timers import LoopTimers
from ottla.testing.cluster import Cluster


def use_everything_once(bootstrap: str) -> None:
    """A topic, a transaction, a group that commits."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"a record")
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert consumer.consume(1, 30)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_a_node_that_stopped_leaves_no_timer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LoopTimers] = []

    class Remembered(LoopTimers):
        def __init__(self, *told: Any) -> None:
            super().__init__(*told)
            made.append(self)

    monkeypatch.setattr(server, "LoopTimers", Remembered)
    with Cluster(nodes=3) as cluster:
        use_everything_once(cluster.bootstrap_servers)
        assert all(timers._wheel.next_deadline_ms() is not None for timers in made)
    assert [timers._wheel.next_deadline_ms() for timers in made] == [None] * 3


def test_a_part_that_fails_at_a_stop_leaves_no_other_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directories stayed locked and without the mark of a clean stop, its ports taken, until the process ended."""
    ends = ReplicaManager.stop

    def fail(replicas: ReplicaManager) -> None:
        ends(replicas)
        raise RuntimeError("one part")

    with Cluster(nodes=1) as cluster:
        (directory,) = cluster._configs[1].log_dirs
        monkeypatch.setattr(ReplicaManager, "stop", fail)
        with pytest.raises(RuntimeError, match="one part"):
            cluster.stop_node(1)
        monkeypatch.undo()
        assert CleanShutdown.is_marked(RealDisk(), directory)
        cluster.start_node(1)
