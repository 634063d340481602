"""What is there when nobody writes any more: from the leaders, as consumers see it, and from each replica's files."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, TopicPartition

from ottla.log.batch import headers
from ottla.log.records import decode_records
from ottla.testing.chaos.workloads.clients import Counted, consumer, offset_of, value_of
from ottla.testing.checker import Isolation, Outcome, Read, now

Place = tuple[str, int]
PATIENCE_S = 30.0
LINE_RECORDS = 500
OFFSET_DIGITS = 20


def by_clients(bootstrap: str, places: Iterable[Place], history: Counted) -> None:
    """All of each partition, at both isolations. One that does not come to its end says so by ``next`` -1."""
    for isolation in Isolation:
        for place in places:
            _read_partition(bootstrap, place, history, isolation)


def _read_partition(bootstrap: str, place: Place, history: Counted, isolation: Isolation) -> None:
    topic, index = place
    client = consumer(bootstrap, **{"isolation.level": str(isolation), "enable.partition.eof": True})
    try:
        begin = now()
        start, _ = client.get_watermark_offsets(TopicPartition(topic, index), timeout=PATIENCE_S)
        client.assign([TopicPartition(topic, index, start)])
        found: list[tuple[int, str]] = []
        following, until = -1, time.monotonic() + PATIENCE_S
        while following < 0 and time.monotonic() < until:
            for message in client.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append((offset_of(message), value_of(message)))
                elif error.code() == KafkaError._PARTITION_EOF:
                    following = offset_of(message)
        _write(
            history,
            place,
            found,
            Read(topic=topic, partition=index, start=start, next=following, isolation=isolation, begin=begin),
        )
    finally:
        client.close()


def of_logs(
    directories: Mapping[int, Sequence[Path]],
    places: Iterable[Place],
    history: Counted,
    lagging: Iterable[tuple[str, int, int]] = (),
) -> None:
    """Each replica that a node has. ``lagging``: (topic, partition, node) of those that were not in sync."""
    late = set(lagging)
    for topic, index in places:
        for node, paths in directories.items():
            for path in paths:
                replica = path / f"{topic}-{index}"
                if replica.is_dir():
                    start, following, found = read_replica(replica)
                    facts = Read(topic=topic, partition=index, start=start, next=following, begin=now())
                    facts.replica, facts.lagging = node, (topic, index, node) in late
                    _write(history, (topic, index), found, facts)


def read_replica(directory: Path) -> tuple[int, int, list[tuple[int, str]]]:
    """Where a replica's log starts and ends, and its records. Raises KafkaError where a batch is damaged."""
    paths = segments(directory)
    start = following = int(paths[0].stem) if paths else 0
    found: list[tuple[int, str]] = []
    for each in paths:
        data = each.read_bytes()
        for at, header in headers(data):
            following = header.next_offset
            if not header.is_control:
                found += [
                    (record.offset, (record.value or b"").decode())
                    for record in decode_records(data, header, position=at)
                ]
    return start, following, found


def segments(directory: Path) -> list[Path]:
    """A replica's, the first one first."""
    return sorted(each for each in directory.glob("*.log") if len(each.stem) == OFFSET_DIGITS)


def _write(history: Counted, place: Place, found: list[tuple[int, str]], facts: Read) -> None:
    """In lines that are not too long."""
    facts.final, facts.outcome, facts.process, facts.end = True, Outcome.OK, "final", now()
    for first in range(0, max(len(found), 1), LINE_RECORDS):
        facts.records = found[first : first + LINE_RECORDS]
        history.write(facts)
