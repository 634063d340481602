"""Wall clocks that are set while a node runs."""

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.chaos.acts import Act
from ottla.testing.chaos.libraries import Clocks
from ottla.testing.chaos.scene import Scene

_CLOSE_S = 30


def jump(role: str, ahead_s: int) -> Act:
    """A broker's clock is set, and set back when the time is over."""

    def act(scene: Scene) -> None:
        clocks = scene.library(Clocks)
        node = scene.who(role)
        if node not in scene.cluster.broker_ids:
            node = scene.who("broker")
        topic = _clock_of(scene, node)
        clocks.set(node, ahead_s)
        scene.hold()
        seen = _told(scene, topic) - time.time()
        clocks.set(node, 0)
        scene.prove(abs(seen - ahead_s) < _CLOSE_S, f"broker {node} stamped a record {seen:+.0f} s from now")
        scene.hold(2.0)

    return act


def _clock_of(scene: Scene, node: int) -> str:
    """A topic that only this broker has, and stamps."""
    topic = f"clock-of-{node}"
    admin = AdminClient({"bootstrap.servers": scene.cluster.direct(node)})
    config = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"}
    asked = NewTopic(topic, num_partitions=1, replica_assignment=[[node]], config=config)
    admin.create_topics([asked])[topic].result(60)
    return topic


def _told(scene: Scene, topic: str) -> float:
    """What the broker's clock says, in seconds."""
    found: list[int] = []
    producer = Producer(
        {"bootstrap.servers": scene.cluster.bootstrap_servers, "acks": "all", "message.timeout.ms": 20_000}
    )
    producer.produce(
        topic, b"?", on_delivery=lambda error, message: found.append(message.timestamp()[1] if error is None else 0)
    )
    producer.flush(25)
    return found[0] / 1000 if found else 0.0
