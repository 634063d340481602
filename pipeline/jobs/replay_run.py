"""Sending the chunks of a replay one after the other, each of them once."""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.durations import words as duration
from ottla.cli.failures import CommandError
from ottla.cli.output import show
from ottla.pipeline.fleet.pace import Pace
from ottla.pipeline.jobs.counting import counted
from ottla.pipeline.jobs.files import Local, Remote, files_of
from ottla.pipeline.jobs.found_tables import format_of, of_files, open_table
from ottla.pipeline.jobs.replay import ReplayOptions
from ottla.pipeline.jobs.replay_plan import Plan, PlanError, Progress, plan_of, rows_a_chunk
from ottla.pipeline.jobs.replay_rows import Rows, chunks_of, extents_of, rows_of, tasks_of
from ottla.pipeline.jobs.stopping import Stopping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAN, PROGRESS = "replay.json", "replay.done"
_NOT_OF_THE_PLAN = {"session", "checkpoint", "dry_run", "rate", "compression", "bootstrap"}
_POLL_S = 0.1


def run(spark: "SparkSession", options: ReplayOptions) -> int:
    """Raises CommandError."""
    from ottla.pipeline import register

    register(spark)
    kind = format_of(options.table, options.format)
    beside = files_of(options.checkpoint) if options.checkpoint else None
    known = _known(beside, options)
    table, files = open_table(spark, options.table, kind) if known is None else (None, [])
    if known is not None or table is None:
        assert known is not None
        table = of_files(spark, options.table, kind, known.files)
    rows = rows_of(table, options)
    if options.dry_run:
        _tell(rows, options, known)
        return 0
    _require_topic(options, rows)
    plan = known or _made(rows, files, options)
    if beside is not None and known is None:
        beside.write(PLAN, plan.text())
    return _send(rows, plan, options, beside)


def _known(beside: Local | Remote | None, options: ReplayOptions) -> Plan | None:
    """The plan that an earlier start wrote down. Raises CommandError for one of another replay."""
    text = _text(beside, PLAN)
    if text is None:
        return None
    try:
        return plan_of(text, _words(options))
    except PlanError as error:
        raise CommandError(f"the checkpoint {options.checkpoint} does not fit: {error}; name another one") from None


def _text(beside: Local | Remote | None, name: str) -> str | None:
    if beside is None:
        return None
    try:
        return beside.text(name)
    except CommandError:
        return None


def _words(options: ReplayOptions) -> dict[str, Any]:
    """What decides which rows go where, as JSON keeps it."""
    told = asdict(options)
    kept = {name: value for name, value in told.items() if name not in _NOT_OF_THE_PLAN}
    return kept | {"start": list(options.start), "until": list(options.until)}


def _made(rows: Rows, files: list[str], options: ReplayOptions) -> Plan:
    extents = extents_of(rows)
    total = sum(each.rows for each in extents)
    chunks = chunks_of(rows, extents, rows_a_chunk(options.chunk, options.rate))
    name = f"replay-{options.topic}-{uuid.uuid4().hex[:12]}"
    return Plan(name, _words(options), tuple(files), total, tasks_of(rows, extents), tuple(chunks if total else ()))


def _tell(rows: Rows, options: ReplayOptions, known: Plan | None) -> None:
    extents = extents_of(rows)
    total = sum(each.rows for each in extents)
    show([each._asdict() for each in extents], ["topic", "partition", "first", "last", "rows"], options.session.output)
    chunks = len(known.chunks) if known else len(chunks_of(rows, extents, rows_a_chunk(options.chunk, options.rate)))
    lasts = f", {duration(total / options.rate)} at {options.rate:g} a second" if options.rate else ""
    click.echo(f"{total:,} rows to {options.topic} in {chunks} chunks{lasts}; nothing was sent", err=True)


def _require_topic(options: ReplayOptions, rows: Rows) -> None:
    """It is there, and has the partitions that rows want to go to."""
    from ottla.pipeline.wire.cluster import Cluster
    from ottla.pipeline.wire.settings import client_settings

    with Cluster(client_settings({"bootstrap.servers": options.bootstrap})) as cluster:
        topic = cluster.topics([options.topic]).get(options.topic)
    if topic is None:
        raise CommandError(f"there is no topic {options.topic}: ottla topics create {options.topic}")
    if options.preserve_partition:
        highest = max((each.partition for each in extents_of(rows)), default=-1)
        if highest >= len(topic.partitions):
            raise CommandError(
                f"rows come from partition {highest}, and {options.topic} has {len(topic.partitions)} partitions:"
                " give it more, or leave --preserve-partition out"
            )


def _send(rows: Rows, plan: Plan, options: ReplayOptions, beside: Local | Remote | None) -> int:
    progress = Progress(_text(beside, PROGRESS))
    pace, began, first = Pace(options.rate), time.monotonic(), progress.done
    share = plan.rows / max(1, len(plan.chunks))
    with Stopping() as stopping, counted("rows", plan.rows) as advance:
        advance(round(share * first))
        for number in range(first, len(plan.chunks)):
            _wait(pace.wait_s(round(share), time.monotonic()), lambda: stopping.is_asked)
            if stopping.is_asked:
                break
            _write(rows.chunk(plan.chunks[number], plan.tasks), plan, number, options)
            progress.done = number + 1
            if beside is not None:
                beside.write(PROGRESS, progress.text())
            advance(round(share))
    return _report(plan, first, progress.done, time.monotonic() - began, options)


def _wait(seconds: float, is_asked: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not is_asked():
        time.sleep(min(left, _POLL_S))


def _write(chunk: "DataFrame", plan: Plan, number: int, options: ReplayOptions) -> None:
    writer = chunk.write.format("ottla").mode("append").option("kafka.bootstrap.servers", options.bootstrap)
    writer = writer.option("topic", options.topic).option("compression", options.compression)
    writer.option("txnAppId", plan.name).option("txnVersion", str(number)).save()


def _report(plan: Plan, first: int, done: int, seconds: float, options: ReplayOptions) -> int:
    is_whole = done >= len(plan.chunks)
    sent = plan.rows if is_whole and first == 0 else round(plan.rows * (done - first) / max(1, len(plan.chunks)))
    row = {
        "topic": options.topic,
        "rows": sent,
        "chunks": f"{done} of {len(plan.chunks)}",
        "seconds": round(seconds, 2),
        "rows/s": round(sent / max(seconds, 0.001)),
        "state": "done" if is_whole else "stopped",
    }
    show([row], list(row), options.session.output)
    if not is_whole and options.checkpoint is None:
        click.echo("without --checkpoint the next start sends everything anew", err=True)
    return 0
