"""Kafka Streams counts words exactly once (`exactly_once_v2`), though it is killed twice, and a node as well."""

import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import ProcessCluster, wait_for
from tests.conformance.kafka_tools import compiled

SOURCE, TARGET, APPLICATION = "lines", "counts", "word-count"
WORDS = ("ash", "birch", "cedar", "elm", "fir", "larch", "oak", "pine")
LINES, PARTITIONS = 3_000, 2
PATIENCE_S = 180.0


@pytest.fixture
def cluster() -> Iterator[ProcessCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
    with ProcessCluster(nodes=3, settings=settings | {"transaction.state.log.num.partitions": "4"}) as running:
        yield running


class WordCount:
    """The application. Its state is a directory, and what it wrote to the cluster."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self._home, self._bootstrap = home, bootstrap
        self._classes = compiled("WordCount", home)

    def start(self) -> subprocess.Popen[bytes]:
        flags = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        words = (self._bootstrap, APPLICATION, SOURCE, TARGET, str(self._home / "state"))
        with (self._home / "out.log").open("ab") as log:
            return subprocess.Popen(["java", *flags, "-cp", self._classes, "WordCount", *words], stdout=log, stderr=log)


class Counts:
    """What a reader of what is committed has found: the counts of each word, as they came."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "counts",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(TARGET, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
        self.of: dict[str, list[int]] = defaultdict(list)

    def read(self) -> int:
        """How many there are by now."""
        for message in self._consumer.consume(1_000, 0.1):
            key, value = message.key(), message.value()
            assert message.error() is None, message.error()
            assert key is not None
            assert value is not None
            self.of[key.decode()].append(int.from_bytes(value, "big"))
        return sum(map(len, self.of.values()))

    def close(self) -> None:
        self._consumer.close()


def test_a_word_count_that_is_killed_counts_every_word_once(cluster: ProcessCluster, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for name, made in admin.create_topics([NewTopic(each, PARTITIONS, 3) for each in (SOURCE, TARGET)]).items():
        made.result(60)
        cluster.wait_for_topic(name, PARTITIONS)
    rng = Random(1)
    lines = [" ".join(rng.choices(WORDS, k=4)) for _ in range(LINES)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    application = WordCount(cluster.bootstrap_servers, tmp_path)
    counts = Counts(cluster.bootstrap_servers)
    process = application.start()
    try:
        for third in range(3):
            for line in lines[third * LINES // 3 : (third + 1) * LINES // 3]:
                producer.produce(SOURCE, line)
            assert producer.flush(60) == 0
            before = counts.read()
            wait_for(lambda before=before: counts.read() > before, "words to be counted", PATIENCE_S)  # type: ignore[misc]  # called now
            if third < 2:
                process.kill()
                process.wait()
                if third:
                    cluster.kill(1)
                    time.sleep(0.3)
                    cluster.start(1)
                process = application.start()
        wait_for(lambda: counts.read() >= 4 * LINES, "all words to be counted", PATIENCE_S)
    except TimeoutError as error:
        raise AssertionError(f"{error}; {(tmp_path / 'out.log').read_text()[-2_000:]}") from None
    finally:
        process.kill()
        process.wait()
        counts.close()
    words = " ".join(lines).split()
    for word in WORDS:
        assert counts.of[word] == list(range(1, words.count(word) + 1)), word
