#!/usr/bin/env python3
"""How long a client waits when a node dies by kill -9, on any Kafka-wire cluster of combined nodes 1..N.

failover BOOTSTRAP --kill 'CMD {i}' --start 'CMD {i}' [--rounds 5] [--what leader,controller]

leader: one record every 5 ms, acks=all, librdkafka's defaults; the longest silence between two acknowledgements.
controller: a topic is created every 50 ms; from the kill to the first creation that was sent after it and is committed.
One JSON line a round. Needs confluent-kafka and kafka-python.
"""

import argparse
import itertools
import json
import subprocess
import threading
import time

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient


def leader_of(bootstrap: str, topic: str) -> int:
    """The leader on which all brokers agree: one that has just started may still answer from an old image."""
    while True:
        brokers = [AdminClient({"bootstrap.servers": b}) for b in bootstrap.split(",")]
        leaders = {b.list_topics(topic, timeout=20).topics[topic].partitions[0].leader for b in brokers}
        if len(leaders) == 1:
            return leaders.pop()
        time.sleep(0.2)


def wait_full(admin: AdminClient, topic: str, replicas: int) -> float:
    start = time.monotonic()
    while time.monotonic() - start < 120:
        part = admin.list_topics(topic, timeout=20).topics[topic].partitions[0]
        if len(part.isrs) == replicas:
            return time.monotonic() - start
        time.sleep(0.05)
    raise SystemExit("the ISR did not fill up again in 120 s")


def kill_leader(args: argparse.Namespace, admin: AdminClient, topic: str) -> dict[str, object]:
    acks: list[float] = []
    failed: list[float] = []
    stop = threading.Event()
    producer = Producer(
        {"bootstrap.servers": args.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
    )

    def delivered(err: KafkaError | None, _message: Message) -> None:
        (failed if err else acks).append(time.monotonic())

    def produce() -> None:
        while not stop.is_set():
            producer.produce(topic, b"x" * 100, partition=0, on_delivery=delivered)
            producer.poll(0.005)
        producer.flush(60)

    thread = threading.Thread(target=produce)
    thread.start()
    time.sleep(2)
    leader = leader_of(args.bootstrap, topic)
    killed = time.monotonic()
    subprocess.run(args.kill.format(i=leader), shell=True, check=True)
    while time.monotonic() - killed < 60 and not (acks and acks[-1] > killed + 0.5 and acks[-1] - killed > 1):
        time.sleep(0.1)
    time.sleep(1)
    stop.set()
    thread.join()
    around = [t for t in acks if t > killed - 0.5]
    gap = max(b - a for a, b in itertools.pairwise(around))
    subprocess.run(args.start.format(i=leader), shell=True, check=True)
    return {
        "what": "leader",
        "node": leader,
        "silence_s": round(gap, 3),
        "failed": len(failed),
        "isr_full_s": round(wait_full(admin, topic, args.replicas), 2),
    }


def kill_controller(args: argparse.Namespace, admin: AdminClient, round_: int) -> dict[str, object]:
    quorum = KafkaAdminClient(bootstrap_servers=args.bootstrap.split(","))
    leader = quorum.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"]
    quorum.close()
    committed: list[float] = []
    killed = time.monotonic()
    subprocess.run(args.kill.format(i=leader), shell=True, check=True)
    for n in range(1200):
        name = f"failover-{time.time_ns()}-{round_}-{n}"
        future = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=5)[name]
        future.add_done_callback(lambda f: committed.append(time.monotonic()) if not f.exception() else None)
        time.sleep(0.05)
        if committed:
            break
    took = (committed[0] if committed else time.monotonic()) - killed
    subprocess.run(args.start.format(i=leader), shell=True, check=True)
    return {"what": "controller", "node": leader, "silence_s": round(took, 3), "gave_up": not committed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap")
    parser.add_argument("--kill", required=True)
    parser.add_argument("--start", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--what", default="leader,controller")
    args = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": args.bootstrap, "socket.timeout.ms": 5000})
    topic = f"failover-{time.time_ns()}"
    admin.create_topics([NewTopic(topic, 1, args.replicas, config={"min.insync.replicas": "2"})])[topic].result(60)
    time.sleep(1)
    for round_ in range(args.rounds):
        for what in args.what.split(","):
            got = kill_leader(args, admin, topic) if what == "leader" else kill_controller(args, admin, round_)
            print(json.dumps(got), flush=True)
            wait_full(admin, topic, args.replicas)
            time.sleep(3)


if __name__ == "__main__":
    main()
