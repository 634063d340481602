"""What `ottla producers` asks of the leaders of partitions."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from ottla.broker.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.broker.wire.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from ottla.cli.client import Client
from ottla.cli.failures import CommandError, refuse
from ottla.cli.leader_requests import Place, Told, ask_leaders, by_topic, metadata
from ottla.cli.output import Row

COLUMNS = (
    "partition",
    "producer id",
    "epoch",
    "last sequence",
    "last written",
    "coordinator epoch",
    "transaction begins at",
)


def producer_rows(bootstrap: str, topic: str, partitions: Collection[int] = ()) -> list[Row]:
    """A row a producer and partition; ``partitions``: none of them for all. Raises CommandError."""
    (known,) = metadata(bootstrap, [topic]).topics
    refuse(known.error_code, topic)
    there = {each.partition_index for each in known.partitions}
    missing = sorted(set(partitions) - there)
    if missing:
        raise CommandError(f"{topic} has no partition {missing[0]}: it has {len(there)}")
    places = [Place(topic, each) for each in sorted(set(partitions) or there)]
    found = ask_leaders(bootstrap, places, _ask).require()
    return [
        _row(place, each)
        for place in places
        for each in sorted(found[place], key=lambda producer: producer.producer_id)
    ]


def _ask(client: Client, places: list[Place], _ids: Mapping[str, bytes]) -> Told[list[ProducerState]]:
    asked = [TopicRequest(topic, [each.partition for each in mine]) for topic, mine in by_topic(places).items()]
    told: Told[list[ProducerState]] = Told({}, {})
    for topic in client.call(DescribeProducersRequest(asked), DescribeProducersResponse).topics:
        for each in topic.partitions:
            told.note(Place(topic.name, each.partition_index), each.error_code, each.active_producers)
    return told


def _row(place: Place, producer: ProducerState) -> Row:
    """Numbers that stand for nothing are left out."""
    written_ms = producer.last_timestamp
    return {
        "topic": place.topic,
        "partition": place.partition,
        "producer id": producer.producer_id,
        "epoch": producer.producer_epoch,
        "last sequence": _number(producer.last_sequence),
        "last written": None
        if written_ms < 0
        else datetime.fromtimestamp(written_ms / 1000, UTC).isoformat(" ", "milliseconds"),
        "coordinator epoch": _number(producer.coordinator_epoch),
        "transaction begins at": _number(producer.current_txn_start_offset),
    }


def _number(value: int) -> int | None:
    return value if value >= 0 else None
