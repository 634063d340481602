"""``ottla produce``: lines of standard input become records (through librdkafka, acks=all, idempotent)."""

import os
import sys
from typing import Any

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import PARTITION, bootstrap_option, in_utf8
from ottla.cli.streams import was_closed


@click.command()
@click.argument("topic", callback=in_utf8)
@bootstrap_option
@click.option("--key-separator", help="What stands between key and value in a line; without, records have no key.")
@click.option("--partition", type=PARTITION, help="Send all to this partition.")
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=in_utf8,
    metavar="NAME=VALUE",
    help="A header of every record; again for more.",
)
def produce(
    topic: str,
    bootstrap: str,
    key_separator: str | None,
    partition: int | None,
    compression: str,
    acks: str,
    headers: tuple[str, ...],
) -> None:
    """Send each line of standard input to TOPIC; ends when every record is acknowledged."""
    if key_separator == "":
        raise click.UsageError("--key-separator: write what stands between, or leave it out for records without keys")
    pairs = [_pair(text) for text in headers]
    if was_closed("stdin"):
        raise CommandError("standard input is closed: there are no lines to send")
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "compression.type": compression,
        "linger.ms": 5,
        "log_level": 0,
    }
    producer = Producer(settings)
    tally = _Tally()
    fixed: dict[str, Any] = {} if partition is None else {"partition": partition}
    for line in sys.stdin.buffer:
        key, value = _split(line.rstrip(b"\n"), key_separator)
        _send(producer, tally, topic=topic, value=value, key=key, headers=pairs, **fixed)
        if tally.failed:  # input may have no end, and all of it go the same way without a word
            tally.not_sent = ", and the lines behind were not sent"
            break
    left = producer.flush(60)
    if tally.failed or left:
        raise CommandError(f"{topic}: {tally.loss(left)}")
    print(_records(tally.acknowledged), "acknowledged", file=sys.stderr)


def _send(producer: Any, tally: "_Tally", **record: Any) -> None:
    """Waits for room. A record that librdkafka does not take is one that failed; what went before it is still on its way."""
    from confluent_kafka import KafkaException

    while True:
        try:
            producer.produce(on_delivery=tally.delivered, **record)
            break
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            tally.delivered(error.args[0], None)
            break
    producer.poll(0)


class _Tally:
    """What the broker said of the records."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failed = 0
        self.reason = ""
        self.not_sent = ""

    def loss(self, left: int) -> str:
        """``left``: of which nothing was said."""
        why = self.reason or "no answer in 60 s"
        there = f"{_records(self.acknowledged)} acknowledged"
        return f"{_records(self.failed + left)} not acknowledged ({why}), {there}{self.not_sent}"

    def delivered(self, error: Any, _message: Any) -> None:
        if error:
            self.failed += 1
            self.reason = error.str()
        else:
            self.acknowledged += 1


def _records(count: int) -> str:
    return f"{count} record{'s' * (count != 1)}"


def _pair(text: str) -> tuple[str, str | bytes | None]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"--header {text}: write NAME=VALUE")
    return name, value


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(os.fsencode(separator))
    return (key, value) if found else (None, line)
