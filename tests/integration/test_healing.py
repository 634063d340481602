"""Real files of a follower are damaged while it is stopped; it comes back, notices, and is as its leader again."""

import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.log.tools.verify import verify
from ottla.runtime.real_disk import RealDisk
from ottla.testing.processes import ProcessCluster, wait_for

SETTINGS = {"ottla.log.scrub.interval.ms": "300", "ottla.log.scrub.bytes.per.second": "1000000000"}
SEGMENT_BYTES = 1 << 20
RECORDS = 3_000
PAGE_BYTES = 4096
HEAL_S = 60.0

_numbers = count(1)


@pytest.fixture(scope="module")
def healing() -> Iterator[ProcessCluster]:
    with ProcessCluster(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


def written(cluster: ProcessCluster, admin: AdminClient) -> str:
    topic = f"damaged-{next(_numbers)}"
    config = {"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "2"}
    for created in admin.create_topics([NewTopic(topic, 1, 3, config=config)]).values():
        created.result(60)
    cluster.wait_for_topic(topic)
    settings = {"enable.idempotence": True, "batch.num.messages": 20}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    for number in range(RECORDS):
        producer.produce(topic, b"%06d" % number + bytes(1_000), partition=0)
    assert producer.flush(60) == 0
    return topic


def leader_and_isr(admin: AdminClient, topic: str) -> tuple[int, int]:
    partition = admin.list_topics(topic, timeout=60).topics[topic].partitions[0]
    return partition.leader, len(partition.isrs)


def contents(log: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))


def is_sound(log: Path) -> bool:
    return not any(finding.fault for finding in verify(RealDisk(), str(log)))


def at_rest(look: Callable[[], bool]) -> Callable[[], bool]:
    """False where a file was listed and is gone before it is opened: the replica is being healed at this very moment."""

    def looked() -> bool:
        try:
            return look()
        except FileNotFoundError:
            return False

    return looked


def spoil(path: Path, how: str, rng: Random) -> None:
    data = bytearray(path.read_bytes())
    position = rng.randrange(len(data))
    match how:
        case "flip":
            data[position] ^= 1 << rng.randrange(8)
        case "zero":
            page = position // PAGE_BYTES * PAGE_BYTES
            end = min(len(data), page + PAGE_BYTES)
            data[page:end] = bytes(end - page)
        case "truncate":
            del data[position:]
    path.write_bytes(data)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("how", ["flip", "zero", "truncate"])
def test_a_damaged_follower_becomes_as_its_leader(healing: ProcessCluster, how: str, number: signal.Signals) -> None:
    rng = Random(f"{how} {number}")
    admin = AdminClient({"bootstrap.servers": healing.bootstrap_servers})
    topic = written(healing, admin)
    wait_for(lambda: leader_and_isr(admin, topic)[1] == 3, "all replicas to be in sync")
    leader, _ = leader_and_isr(admin, topic)
    follower = leader % 3 + 1
    log = healing.directory(follower, topic)
    healing.kill(follower, number)
    for suffix in ("log", "index", "timeindex"):
        spoil(rng.choice([path for path in sorted(log.glob(f"*.{suffix}")) if path.stat().st_size]), how, rng)
    assert not is_sound(log) or how == "truncate"
    healing.start(follower)

    def healed() -> bool:
        leader, in_sync = leader_and_isr(admin, topic)
        if in_sync < 3:
            return False
        return contents(log) == contents(healing.directory(leader, topic)) and is_sound(log)

    wait_for(at_rest(healed), f"node {follower} to be healed", HEAL_S)
    assert contents(log).count(bytes(1_000)) >= RECORDS


def test_a_leader_that_is_damaged_while_it_runs_hands_over_and_is_healed(healing: ProcessCluster) -> None:
    admin = AdminClient({"bootstrap.servers": healing.bootstrap_servers})
    topic = written(healing, admin)
    wait_for(lambda: leader_and_isr(admin, topic)[1] == 3, "all replicas to be in sync")
    leader, _ = leader_and_isr(admin, topic)
    log = healing.directory(leader, topic)
    before = contents(log)
    assert before[20_000] != 0xFF
    with sorted(log.glob("*.log"))[0].open("r+b") as segment:  # the very file that the leader has open
        segment.seek(20_000)
        segment.write(b"\xff")

    wait_for(lambda: leader_and_isr(admin, topic)[0] not in (leader, -1), "another leader", HEAL_S)

    def healed() -> bool:
        return leader_and_isr(admin, topic)[1] == 3 and contents(log) == before

    wait_for(at_rest(healed), "the old leader to be healed", HEAL_S)
    consumer = Consumer(
        {"bootstrap.servers": healing.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [(message.value() or b"")[:6] for message in consumer.consume(RECORDS, timeout=60)]
    consumer.close()
    assert values == [b"%06d" % number for number in range(RECORDS)]
