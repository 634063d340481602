"""``ottla spark aggregate``: windows of event time."""

from dataclasses import dataclass
from typing import Any

import click

from ottla.pipeline.jobs.launch import launch
from ottla.pipeline.jobs.measures import Measure, measure_of, named
from ottla.pipeline.jobs.tables import default_checkpoint, format_option, needed
from ottla.pipeline.jobs.values import ValueWords, value_words
from ottla.pipeline.jobs.words import (
    InputWords,
    SessionWords,
    StreamWords,
    input_words,
    interval_ms,
    session_words,
    stream_words,
)

COUNT = "count(*) as count"


@dataclass(frozen=True)
class AggregateOptions:
    """What is counted, of which windows, and where it goes."""

    input: InputWords
    stream: StreamWords
    session: SessionWords
    value: ValueWords
    window: str
    watermark: str
    keys: tuple[Measure, ...]
    measures: tuple[Measure, ...]
    slide: str | None = None
    time_column: str = "timestamp"
    where: str | None = None
    table: str | None = None
    table_format: str = "delta"
    to_topic: str | None = None
    to_bootstrap: str | None = None
    compact_every: int = 100
    target_bytes: int = 128 << 20

    @property
    def target(self) -> str:
        return self.table or f"topic {self.to_topic}"

    @property
    def checkpoint(self) -> str | None:
        return self.stream.checkpoint or (default_checkpoint(self.table) if self.table else None)


@click.command()
@input_words
@value_words
@click.option("--window", required=True, metavar="SPAN", help='How long a window is: "10 minutes".')
@click.option("--slide", metavar="SPAN", help="How often one begins.  [default: when the one before ends]")
@click.option(
    "--watermark", default="10 minutes", show_default=True, metavar="SPAN", help="How late a record may come."
)
@click.option(
    "--time-column", default="timestamp", show_default=True, metavar="COLUMN", help="When a record happened, SQL too."
)
@click.option(
    "--by", "keys", multiple=True, metavar="SQL", help='A group of its own for each "carrier"; again for more.'
)
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="SQL",
    help='"avg(delay) as delay", "max(delay)", "p95(delay)": again for more.  [default: count(*)]',
)
@click.option("--where", metavar="SQL", help="Only these records.")
@click.option("--table", metavar="DIR", help="Where the table of windows is, or will be.")
@format_option
@click.option("--to-topic", metavar="TOPIC", help="Or the topic that gets a record of JSON for each.")
@click.option("--to-bootstrap-server", "to_bootstrap", help="Of that topic's cluster.  [default: --bootstrap-server]")
@stream_words
@session_words
def aggregate(**words: Any) -> None:
    """Count, average and compare records by windows of event time.

    A window is written once, when --watermark says that nothing more of it comes: what comes after that is late, and only counted.
    With available-now the windows that are still open wait in the checkpoint for the next run.
    """
    from ottla.pipeline.jobs import missing

    options = options_of(words)
    missing.require(*needed(options.table_format) if options.table else ())
    launch("aggregate", "ottla.pipeline.jobs.aggregate_run:run", options)


def options_of(words: dict[str, Any]) -> AggregateOptions:
    """Raises UsageError."""
    if (words["table"] is None) == (words["to_topic"] is None):
        raise click.UsageError("write one of --table, --to-topic")
    for name in ("window", "slide", "watermark"):
        if words[name] is not None:
            words[name] = span(words[name], f"--{name}")
    words["keys"] = named(measure_of(each, "--by") for each in words["keys"])
    words["measures"] = named(measure_of(each, "--measure") for each in words["measures"] or (COUNT,))
    taken = [each.name for each in (*words["keys"], *words["measures"])]
    if len(set(taken)) < len(taken) or {"window_start", "window_end"} & set(taken):
        raise click.UsageError(f"columns of one name: {', '.join(taken)}, window_start, window_end; say AS for another")
    options = AggregateOptions(**words)
    if options.checkpoint is None:
        raise click.UsageError("--to-topic wants a --checkpoint")
    return options


def span(text: str, option: str) -> str:
    """As Spark takes it. Raises UsageError."""
    try:
        milliseconds = interval_ms(text)
    except click.UsageError:
        milliseconds = None
    if not milliseconds:
        raise click.UsageError(f'{option} {text!r}: write a span such as "10 minutes"')
    return f"{milliseconds} milliseconds"
