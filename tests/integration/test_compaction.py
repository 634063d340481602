"""A real broker cleans a real log with a real worker process, while a client writes."""

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import ProcessCluster, wait_for

KEYS = 150
ROUNDS = 5
VALUE_BYTES = 10_000
SEGMENT_BYTES = 1_048_576
TOPIC = "last-values"
SERVER = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "2",
    "log.segment.delete.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "200",  # only what is known to be on stable storage is cleaned
}
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
}


def key(number: int) -> bytes:
    return b"key-%d" % number


def value(number: int, round_: int) -> bytes:
    return b"%d/%d " % (number, round_) * (VALUE_BYTES // 8)


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_CONFIG)]).values():
        created.result(60)


def produce(bootstrap: str) -> None:
    """Every key in every round, in batches far smaller than a segment."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 65_536})
    for round_ in range(ROUNDS):
        for number in range(KEYS):
            producer.produce(TOPIC, value(number, round_), key(number), partition=0)
        assert producer.flush(60) == 0


def consume(bootstrap: str) -> list[Message]:
    """All that the partition holds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    partition = TopicPartition(TOPIC, 0, 0)
    end = consumer.get_watermark_offsets(partition, timeout=60)[1]
    consumer.assign([partition])
    found: list[Message] = []
    while not found or (found[-1].offset() or 0) < end - 1:
        message = consumer.poll(30)
        assert message is not None, f"the end of the log, {end}, is not reached"
        assert message.error() is None
        found.append(message)
    consumer.close()
    return found


def active_base_offset(directory: Path) -> int:
    return max(int(file.stem) for file in directory.glob("*.log"))


def cleaned_up_to(directory: Path) -> int:
    """What the cleaner has in its checkpoint (Kafka's format: version, count, then a line a partition); -1 before that."""
    checkpoint = directory.parent / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return -1
    entries = [line.split() for line in checkpoint.read_text(encoding="utf-8").splitlines()[2:]]
    return next((int(offset) for topic, _, offset in entries if topic == TOPIC), -1)


def is_clean(directory: Path) -> bool:
    left_over = [file for file in directory.iterdir() if file.suffix in (".deleted", ".cleaned", ".swap")]
    return cleaned_up_to(directory) == active_base_offset(directory) and not left_over


def test_a_compacted_topic_keeps_the_last_value_of_each_key(tmp_path: Path) -> None:
    with ProcessCluster(nodes=1, home=tmp_path, settings=SERVER) as cluster:
        create(cluster.bootstrap_servers)
        cluster.wait_for_topic(TOPIC)
        directory = cluster.directory(1, TOPIC)
        produce(cluster.bootstrap_servers)
        active_base = active_base_offset(directory)
        assert active_base > KEYS * (ROUNDS - 2), "too little was written for the test to say anything"
        wait_for(lambda: is_clean(directory), "the cleaner to be done with all closed segments")
        found = consume(cluster.bootstrap_servers)
        cluster.kill(1)  # what was cleaned must be whole without a clean end, too
        cluster.start(1)
        assert [message.offset() for message in consume(cluster.bootstrap_servers)] == [m.offset() for m in found]

    closed = [message.key() for message in found if (message.offset() or 0) < active_base]
    assert len(closed) == len(set(closed)) <= KEYS
    assert len(found) <= KEYS + (KEYS * ROUNDS - active_base)
    assert {message.key(): message.value() for message in found} == {
        key(number): value(number, ROUNDS - 1) for number in range(KEYS)
    }
    first_offset_of_last_round = KEYS * (ROUNDS - 1)
    written = {(first_offset_of_last_round + number, key(number)) for number in range(KEYS)}
    assert {(message.offset(), message.key()) for message in found} >= written, "records keep their offsets"

    command = [sys.executable, "-m", "ottla.cli.main", "log", "dump", "--verify", str(directory.parent)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
