"""``ottla consume``: print a topic's records, with all its partitions assigned, or as a member of a group (through librdkafka)."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from types import FrameType
from typing import Any, BinaryIO

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import PARTITION, bootstrap_option, in_utf8
from ottla.cli.streams import was_closed


@click.command()
@click.argument("topic", callback=in_utf8)
@bootstrap_option
@click.option(
    "--group", callback=in_utf8, help="Join this group, and commit what was printed: it goes on there the next time."
)
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"]),
    help="How to be a member: classic, as all brokers know it (default), or consumer (KIP-848), where the broker assigns.",
)
@click.option(
    "--from-beginning/--from-end",
    default=True,
    show_default=True,
    help="Where to begin; with --group only what it has committed nothing of.",
)
@click.option("--partition", type=PARTITION, multiple=True, help="Only this partition; again for more.")
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
    group: str | None,
    group_protocol: str | None,
    from_beginning: bool,
    partition: tuple[int, ...],
    max_messages: int | None,
    timeout_ms: int | None,
    output: str,
) -> None:
    """Print the records of TOPIC until Ctrl-C (or SIGTERM), --max-messages or --timeout-ms."""
    if group is not None and partition:
        raise click.UsageError("a group shares the partitions among its members: --partition goes without --group")
    if group == "":
        raise click.UsageError("--group: a group has a name")
    if group_protocol is not None and group is None:
        raise click.UsageError("--group-protocol is how a member of a group speaks: name it with --group")
    if was_closed("stdout"):  # with a group, what nobody saw would be committed
        raise CommandError("standard output is closed: there is nowhere to print the records")
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(_settings(bootstrap, group, from_beginning, group_protocol))
    try:
        _begin(consumer, topic, partition, group, from_beginning)
        _print_records(consumer, max_messages, timeout_ms, output, commits=group is not None)
    except KafkaException as error:
        raise CommandError(f"{topic}: {error.args[0].str()}") from error
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


def _settings(
    bootstrap: str, group: str | None, from_beginning: bool, group_protocol: str | None = None
) -> dict[str, Any]:
    """What is printed is stored, and committed every second and at the end."""
    return {
        "group.protocol": group_protocol or "classic",
        "bootstrap.servers": bootstrap,
        "group.id": group or "ottla-cli",
        "enable.auto.commit": group is not None,
        "auto.commit.interval.ms": 1_000,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "client.id": "ottla-cli",
        "log_level": 0,
    }


def _begin(consumer: Any, topic: str, partition: tuple[int, ...], group: str | None, from_beginning: bool) -> None:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    there = _partitions(consumer, topic)
    missing = sorted(set(partition) - set(there))
    if missing:
        raise CommandError(f"{topic} has no partition {missing[0]}: it has {len(there)}")
    if group is not None:
        consumer.subscribe([topic])
        return
    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    consumer.assign([TopicPartition(topic, number, start) for number in sorted(set(partition)) or there])


def _partitions(consumer: Any, topic: str) -> tuple[int, ...]:
    found = consumer.list_topics(topic, timeout=10).topics[topic]
    if found.error:
        raise CommandError(f"{topic}: {found.error.str()}")
    return tuple(sorted(found.partitions))


class _Ends:
    """Ctrl-C and SIGTERM end the printing alike (a group waits for a member that does not leave), but not while it is noted how far it came."""

    def __init__(self) -> None:
        self._came = self._is_noted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._take)

    def _take(self, _signal: int, _frame: FrameType | None) -> None:
        self._came = True
        if not self._is_noted:
            raise KeyboardInterrupt

    @contextmanager
    def later(self) -> Iterator[None]:
        """What comes meanwhile ends it afterwards."""
        self._is_noted = True
        yield
        self._is_noted = False
        if self._came:
            raise KeyboardInterrupt


def _print_records(
    consumer: Any, max_messages: int | None, timeout_ms: int | None, output: str, *, commits: bool
) -> None:
    ends, to = _Ends(), _buffered_output()
    left = max_messages if max_messages is not None else sys.maxsize
    last = time.monotonic()
    while left > 0 and (timeout_ms is None or (time.monotonic() - last) * 1000 < timeout_ms):
        messages = consumer.consume(min(left, 1000), timeout=0.1)
        printed: list[Any] = []
        ended: BaseException | None = None
        try:
            _print(messages, output, to, printed)
        except (KeyboardInterrupt, CommandError) as error:
            ended = error  # what was printed already counts: it would be printed again
        if commits:
            with ends.later():
                _store(consumer, printed)
        if ended is not None:
            raise ended
        if printed:
            last = time.monotonic()
            left -= len(printed)


def _buffered_output() -> BinaryIO:
    """Also where Python was told not to buffer: else a signal finds a record that is printed, and nothing that says so."""
    if isinstance(sys.stdout.buffer, FileIO):
        return open(sys.stdout.fileno(), "wb", closefd=False)
    return sys.stdout.buffer


def _print(messages: list[Any], output: str, to: BinaryIO, printed: list[Any]) -> None:
    try:
        for message in messages:
            if message.error():
                raise CommandError(message.error().str())
            to.write(_line(message, output))
            printed.append(message)
    finally:
        to.flush()


def _store(consumer: Any, messages: list[Any]) -> None:
    """The last of each partition, now that it is printed. Those of a partition that has gone to another member meanwhile are his."""
    from confluent_kafka import KafkaException

    for message in {each.partition(): each for each in messages}.values():
        try:
            consumer.store_offsets(message)
        except KafkaException:
            continue


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
