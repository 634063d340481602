"""The words that jobs share. Each decorator adds its options to a command, and hands them over as one value."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from ottla.cli.output import bootstrap_option, output_option
from ottla.pipeline.jobs.gathering import gathering
from ottla.pipeline.jobs.numbers import FiniteRange
from ottla.pipeline.jobs.places import EARLIEST, LATEST, Place, place_of

AVAILABLE_NOW = "available-now"
NO_GROUP = "none"
FROM_EARLIEST, UNTIL_LATEST = Place(word=EARLIEST), Place(word=LATEST)
_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)\s*(?:(ms|milliseconds?)|(s|seconds?)|(min|minutes?)|(h|hours?))")
_MILLISECONDS = (1, 1000, 60_000, 3_600_000)
_NAME = re.compile(r"[^A-Za-z0-9._-]+")

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class InputWords:
    """Which records a job reads, and through which source."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    start: Place = FROM_EARLIEST
    until: Place = UNTIL_LATEST
    source: str = "ottla"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic_label(self) -> str:
        """For names of queries, groups and tables."""
        label = self.pattern or "-".join(self.topics or sorted(self.assign or ()))
        return _NAME.sub("-", label).strip("-")

    def read_options(self, *, streaming: bool) -> dict[str, str]:
        """Those of Spark's Kafka connector. A stream has an end only where one was named."""
        chosen = {"kafka.bootstrap.servers": self.bootstrap, **self._topics(), **self.start.options("starting")}
        if not streaming or self.until != UNTIL_LATEST:
            chosen |= self.until.options("ending")
        return chosen | dict(self.options)

    def _topics(self) -> dict[str, str]:
        if self.pattern is not None:
            return {"subscribePattern": self.pattern}
        if self.assign is not None:
            return {"assign": json.dumps({topic: list(each) for topic, each in self.assign.items()}, sort_keys=True)}
        return {"subscribe": ",".join(self.topics)}


@dataclass(frozen=True)
class StreamWords:
    """How a query goes on: where it remembers, when it reads, how much at once, and who is told."""

    checkpoint: str | None = None
    interval_ms: int | None = None
    """None: what is there now, then the job ends."""
    offsets_max: int | None = None
    bytes_max: int | None = None
    group: str | None = None
    name: str | None = None
    stop_timeout_s: float = 60.0

    def limit_options(self) -> dict[str, str]:
        limits = {"maxOffsetsPerTrigger": self.offsets_max, "maxBytesPerTrigger": self.bytes_max}
        return {name: str(limit) for name, limit in limits.items() if limit is not None}

    def group_of(self, query: str) -> str | None:
        """Whose offsets are committed; None for nobody's."""
        return None if self.group == NO_GROUP else self.group or f"ottla-{query}"


@dataclass(frozen=True)
class SessionWords:
    """Where Spark runs, and what the person sees."""

    master: str | None = None
    confs: Mapping[str, str] = field(default_factory=dict)
    progress: str | None = None
    output: str = "table"
    spark_log: str | None = None


# --- decorators -------------------------------------------------------------------------------------------------------


def input_words(command: Command) -> Command:
    """Gives the command ``input``, an InputWords."""
    options = [
        bootstrap_option,
        click.option("--topics", metavar="A,B", help="The topics to read, by comma."),
        click.option("--pattern", metavar="REGEX", help="Every topic whose whole name matches, new ones too."),
        click.option("--assign", metavar="JSON", help='Some partitions: {"flights":[0,2]}.'),
        click.option("--from", "start", default=EARLIEST, show_default=True, metavar="PLACE", help=_PLACE_HELP),
        click.option("--until", default=LATEST, show_default=True, metavar="PLACE", help="Where to end, likewise."),
        click.option(
            "--source",
            type=click.Choice(["ottla", "jvm"]),
            default="ottla",
            show_default=True,
            help="jvm: Spark's own Kafka connector, whose jars --conf spark.jars names.",
        ),
        click.option(
            "--option", "more", multiple=True, metavar="NAME=VALUE", help="An option of the source; again for more."
        ),
    ]
    return gathering(command, options, "input", _input_of)


def stream_words(command: Command) -> Command:
    """Gives the command ``stream``, a StreamWords."""
    options = [
        click.option(
            "--checkpoint", metavar="DIR", help="Where the job remembers how far it is.  [default: beside the table]"
        ),
        click.option(
            "--trigger",
            default=AVAILABLE_NOW,
            show_default=True,
            metavar="WHEN",
            help='available-now: what is there, then end. "10 seconds": every so often, until stopped.',
        ),
        click.option(
            "--max-offsets-per-trigger", "offsets_max", type=click.IntRange(1), help="Records a batch, at most."
        ),
        click.option("--max-bytes-per-trigger", "bytes_max", type=click.IntRange(1), help="Bytes a batch, about."),
        click.option(
            "--group", help="Commit what was read as this group's offsets; none: do not.  [default: ottla-NAME]"
        ),
        click.option("--name", help="The query's name.  [default: JOB-TOPICS]"),
        click.option(
            "--stop-timeout",
            "stop_timeout_s",
            type=FiniteRange(0),
            default=60.0,
            show_default=True,
            help="Seconds for the batch at work when the job is told to stop.",
        ),
    ]
    return gathering(command, options, "stream", _stream_of)


def session_words(command: Command) -> Command:
    """Gives the command ``session``, a SessionWords."""
    options = [
        click.option("--master", help="Spark's master: local[4], spark://host:7077, yarn.  [default: local[*]]"),
        click.option(
            "--conf", "confs", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; again for more."
        ),
        click.option("--progress", metavar="FILE", help="Append a line of JSON a batch to FILE; stdout: print it."),
        click.option("--spark-log", type=click.Path(dir_okay=False), help="Keep what Spark logs in this file."),
        output_option,
    ]
    return gathering(command, options, "session", _session_of)


_PLACE_HELP = (
    'Where a new job begins: earliest, latest, offsets {"flights":{"0":5}}, a time 2026-11-21T20:15. '
    "A job that has a checkpoint goes on where it was."
)


# --- values -----------------------------------------------------------------------------------------------------------


def _input_of(words: dict[str, Any]) -> InputWords:
    topics = tuple(filter(None, (each.strip() for each in (words["topics"] or "").split(","))))
    given = [bool(topics), words["pattern"] is not None, words["assign"] is not None]
    if sum(given) != 1:
        raise click.UsageError("write one of --topics, --pattern, --assign")
    if words["pattern"] is not None:
        _require_regex(words["pattern"])
    return InputWords(
        words["bootstrap"],
        topics,
        words["pattern"],
        _partitions_of(words["assign"]),
        place_of(words["start"], "--from"),
        place_of(words["until"], "--until"),
        words["source"],
        pairs(words["more"], "--option"),
    )


def _require_regex(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise click.UsageError(f"--pattern {text!r} is no regular expression: {error}") from None


def _partitions_of(text: str | None) -> dict[str, tuple[int, ...]] | None:
    if text is None:
        return None
    try:
        found = {topic: tuple(int(each) for each in numbers) for topic, numbers in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        found = {}
    if not found or not all(found.values()):
        raise click.UsageError(f'--assign {text!r}: write {{"flights":[0,2]}}')
    return found


def _stream_of(words: dict[str, Any]) -> StreamWords:
    trigger = words.pop("trigger")
    if words["name"] is not None and _NAME.search(words["name"]):
        raise click.UsageError(f"--name {words['name']!r}: letters, digits, '.', '_' and '-' only")
    return StreamWords(interval_ms=interval_ms(trigger), **words)


def interval_ms(text: str) -> int | None:
    """None for available-now. Raises UsageError."""
    if text.strip().lower() in (AVAILABLE_NOW, "availablenow", "once"):
        return None
    found = _INTERVAL.fullmatch(text.strip().lower())
    if found is None:
        raise click.UsageError(f'--trigger {text!r}: write available-now, or an interval such as "10 seconds"')
    number, *units = found.groups()
    return round(float(number) * next(size for size, unit in zip(_MILLISECONDS, units, strict=True) if unit))


def _session_of(words: dict[str, Any]) -> SessionWords:
    return SessionWords(**(words | {"confs": pairs(words["confs"], "--conf")}))


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """NAME=VALUE of each. Raises UsageError."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{option} {text}: write NAME=VALUE")
        found[name.strip()] = value
    return found
