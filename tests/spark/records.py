"""Topics with all that a reader may meet, and what a reader that knows Kafka finds in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame

Row = tuple[str, int, int, bytes | None, bytes | None, datetime, int, tuple[tuple[str, bytes | None], ...]]
"""Topic, partition, offset, key, value, timestamp, timestampType, headers."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
AT_ONCE = {"kafka.fetch.max.wait.ms": "20"}
"""For a reader that has nothing to wait for. With Kafka's half a second a Java consumer stands behind the fetch that it sent ahead, in each read."""
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = timedelta(seconds=1)


@dataclass(frozen=True)
class Written:
    """One record that somebody who reads what is committed sees; its offset is found by reading."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime
    headers: tuple[tuple[str, bytes | None], ...]


def create(bootstrap: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Replicated as the cluster does by default."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, partitions, config={"retention.ms": "-1"} | (config or {}))])
    made[topic].result(60)


def count_up(bootstrap: str, topic: str, records: int, partitions: int = 1, first: int = 0) -> None:
    """Numbers as values, in turn on all partitions, a second apart."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "topic.metadata.refresh.interval.ms": 1000})
    for number in range(first, first + records):
        at_ms = int((BEGAN + number * EVERY).timestamp() * 1000)
        producer.produce(topic, str(number), str(number % 7), partition=number % partitions, timestamp=at_ms)
        producer.poll(0)
    assert producer.flush(60) == 0


def fill(bootstrap: str, topic: str, records: int = 30, partitions: int = 3) -> list[Written]:
    """Every codec, keys, values and headers that are missing or empty, two transactions that are committed and one that is aborted."""
    create(bootstrap, topic, partitions)
    committed: list[Written] = []
    for number, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        committed += _send(producer, topic, list(_strange(number * records, records, partitions)))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(30)
    for number in range(3):
        producer.begin_transaction()
        sent = _send(producer, topic, list(_strange((len(CODECS) + number) * records, records, partitions)))
        if number == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += sent
    return committed


def _strange(first: int, records: int, partitions: int) -> Iterator[Written]:
    for number in range(first, first + records):
        yield Written(
            partition=number % partitions,
            key=(None, b"", f"key-{number}".encode())[number % 7 % 3],
            value=(None, b"", f"value-{number}".encode() * 20)[number % 5 % 3],
            timestamp=BEGAN + number * EVERY + timedelta(milliseconds=number % 1000),
            headers=((), (("a", b"1"),), (("a", b"1"), ("a", None), ("é", b"")))[number % 3],
        )


def _send(producer: Producer, topic: str, records: list[Written]) -> list[Written]:
    for each in records:
        at_ms = round(each.timestamp.timestamp() * 1000)
        headers: list[tuple[str, str | bytes | None]] = list(each.headers)
        producer.produce(topic, each.value, each.key, each.partition, timestamp=at_ms, headers=headers)
    assert producer.flush(60) == 0
    return records


def written_in(rows: list[Row]) -> list[Written]:
    """Sorted by partition and time."""
    found = [Written(partition, key, value, at, headers) for _, partition, _, key, value, at, _, headers in rows]
    return sorted(found, key=_place)


def in_order(records: list[Written]) -> list[Written]:
    return sorted(records, key=_place)


def _place(record: Written) -> tuple[int, datetime]:
    return record.partition, record.timestamp


def rows_of(frame: DataFrame) -> list[Row]:
    """All columns of the connector's schema, by partition and offset."""
    with_headers = "headers" in frame.columns
    rows = frame.orderBy("topic", "partition", "offset").collect()
    return [
        (
            row.topic,
            row.partition,
            row.offset,
            _bytes(row.key),
            _bytes(row.value),
            row.timestamp.astimezone(UTC),
            row.timestampType,
            tuple((each.key, _bytes(each.value)) for each in (row.headers or ())) if with_headers else (),
        )
        for row in rows
    ]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
