"""``ottla consume``: print a topic's records (through librdkafka, partitions assigned, no group)."""

import json
import sys
import time
from typing import Any

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import bootstrap_option


@click.command()
@click.argument("topic")
@bootstrap_option
@click.option("--from-beginning/--from-end", default=True, show_default=True, help="Where to begin.")
@click.option("--partition", type=click.IntRange(0), multiple=True, help="Only this partition; again for more.")
@click.option("--max-messages", type=click.IntRange(1), help="End after this many records.")
@click.option("--timeout-ms", type=click.IntRange(1), help="End when no record came for this long.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["value", "json"]),
    default="value",
    show_default=True,
    help="json: a line a record with offset, key, headers.",
)
def consume(
    topic: str,
    bootstrap: str,
    from_beginning: bool,
    partition: tuple[int, ...],
    max_messages: int | None,
    timeout_ms: int | None,
    output: str,
) -> None:
    """Print the records of TOPIC until Ctrl-C, --max-messages or --timeout-ms."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "ottla-cli", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    try:
        wanted = partition or _partitions(consumer, topic)
        start = OFFSET_BEGINNING if from_beginning else OFFSET_END
        consumer.assign([TopicPartition(topic, number, start) for number in wanted])
        _print_records(consumer, max_messages, timeout_ms, output)
    except KafkaException as error:
        raise CommandError(f"{topic}: {error.args[0].str()}") from error
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


def _partitions(consumer: Any, topic: str) -> tuple[int, ...]:
    found = consumer.list_topics(topic, timeout=10).topics[topic]
    if found.error:
        raise CommandError(f"{topic}: {found.error.str()}")
    return tuple(sorted(found.partitions))


def _print_records(consumer: Any, max_messages: int | None, timeout_ms: int | None, output: str) -> None:
    left = max_messages if max_messages is not None else sys.maxsize
    last = time.monotonic()
    while left > 0 and (timeout_ms is None or (time.monotonic() - last) * 1000 < timeout_ms):
        for message in consumer.consume(min(left, 1000), timeout=0.1):
            if message.error():
                raise CommandError(message.error().str())
            sys.stdout.buffer.write(_line(message, output))
            last = time.monotonic()
            left -= 1
        sys.stdout.buffer.flush()


def _line(message: Any, output: str) -> bytes:
    if output == "value":
        return (message.value() or b"") + b"\n"
    record = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[name, _text(value)] for name, value in message.headers() or []],
    }
    return json.dumps(record).encode() + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
