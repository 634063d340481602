"""What the coordinators' shards have, beside what their partitions say."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.shard_host import Shard
from ottla.broker.replication.partition import Partition
from ottla.log.batch import headers, read_header
from ottla.log.records import decode_records, read_end_marker
from ottla.runtime.errors import KafkaError
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.violations import InvariantViolation

STATE = "a coordinator's state is what its partition says"


def check_shards(run: Run) -> int:
    """All that are loaded; how many. Raises InvariantViolation."""
    looks = 0
    for number, broker in run.servers.items():
        with run.cluster.nodes[number].platter.sound():  # or the node would learn from us that its disk fails
            looks += sum(_check(run, number, each) for each in coordinators(broker))
    return looks


def coordinators(broker: Broker) -> list[Coordinator[Any, Any]]:
    """Those that a broker has."""
    return [broker.context.groups, broker.context.transactions]


def missing_shards(run: Run) -> str:
    """Where nobody coordinates who should; "" when all is well."""
    for number, broker in run.servers.items():
        for each in coordinators(broker):
            topic = run.invariants.metadata.topics_by_name.get(each.topic)
            due = (
                [index for index, view in topic.partitions.items() if view.leader == number]
                if topic is not None
                else []
            )
            found = [index for index, (host, _) in each._hosts.items() if host.is_loaded]
            if sorted(found) != sorted(due):
                return f"broker {number} coordinates {found} of {each.topic}, and leads {due}"
    return ""


def _check(run: Run, number: int, coordinator: Coordinator[Any, Any]) -> int:
    looks = 0
    for index, (host, shard) in coordinator._hosts.items():
        partition = run.partition(number, coordinator.topic, index)
        leader = partition.leader if partition is not None else None
        if partition is None or leader is None or leader.epoch != host._leader_epoch:
            continue  # it is about to hear of it
        if not host.is_loaded or host._own.has_unwritten:
            continue  # what was decided in this turn is not written yet
        fresh = coordinator._shard(host, leader.epoch)
        try:
            replay(partition, fresh)
        except KafkaError:
            continue  # its disk cannot be read just now
        if fresh.contents() != shard.contents():
            raise InvariantViolation(STATE, f"{partition}: {_different(shard.contents(), fresh.contents())}")
        looks += 1
    return looks


def replay(partition: Partition, shard: Shard) -> None:
    """All that a partition's log has."""
    log, place = partition.log, 0
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, wait=True)
        for at, header in headers(found.data):
            batch = _decoded(bytes(found.data[at : at + header.size_bytes]))
            if batch.is_commit is not None:
                shard.end_transaction(batch.producer_id, is_commit=batch.is_commit)
            for at_offset, record in batch.records:
                if at_offset >= offset:
                    place += 1
                    shard.replay(record, place, batch.producer_id)
        if not found.data:
            return
        offset = found.next_offset


class _Decoded(NamedTuple):
    """What a batch says to a shard. ``is_commit``: of a marker. ``records``: with their offsets; -1 for who wrote them in no transaction."""

    producer_id: int
    is_commit: bool | None
    records: tuple[tuple[int, Record], ...]


@lru_cache(1 << 13)
def _decoded(batch: bytes) -> _Decoded:
    """Replicas have the same bytes, and every look reads all from the beginning again: to find what they say took half of it."""
    header = read_header(batch)
    if header.is_control:
        marker = read_end_marker(batch, header, 0)
        return _Decoded(header.producer_id, None if marker is None else marker.committed, ())
    records = (
        (each.offset, Record(each.key, each.value)) for each in decode_records(batch, header) if each.key is not None
    )
    return _Decoded(header.producer_id if header.is_transactional else -1, None, tuple(records))


def _different(one: Any, other: Any) -> str:
    """(what the coordinator has, what its partition says), of what is not the same."""
    return ", ".join(f"{path}: {pair}" for path, pair in _differences("", one, other))


def _differences(path: str, one: Any, other: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys((*one, *other)):
            yield from _differences(f"{path}/{key}", one.get(key), other.get(key))
    elif isinstance(one, tuple) and isinstance(other, tuple) and type(one) is tuple and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(f"{path}/{place}", *pair)
    elif one != other:
        yield path, (one, other)
