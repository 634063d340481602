"""Judging topics and tables of a fleet, and saying what was found."""

import time
from typing import Any

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import show
from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.judge import Findings, Judge
from ottla.pipeline.fleet.payload import topic_of
from ottla.pipeline.fleet.sending import numbers_of
from ottla.pipeline.jobs.check import CheckOptions
from ottla.pipeline.jobs.counting import Advance, counted
from ottla.pipeline.jobs.generate_run import fleet_of

COLUMNS = ["where", "records", "expected", "lost", "doubled", "reordered", "foreign", "seconds", "records/s"]


def run(options: CheckOptions) -> int:
    """The exit code: 0 where everything is as it should be. Raises CommandError."""
    fleet, rows, is_whole = fleet_of(options.fleet), [], True
    for kind in options.kinds:
        where = options.table or topic_of(options.prefix, kind)
        began = time.monotonic()
        with counted("records", int(numbers_of(fleet, kind).sum())) as advance:
            found, has_order = _judged(fleet, kind, where, options, advance)
        seconds = max(time.monotonic() - began, 0.001)
        rows.append(_row(where, found, has_order, seconds))
        is_whole &= found.is_whole
        for what, names in found.examples.items():
            if names:
                click.echo(f"{where}: {what}, for instance {', '.join(names[:5])}", err=True)
    show(rows, COLUMNS, options.output)
    return 0 if is_whole else 1


def _judged(fleet: Fleet, kind: str, where: str, options: CheckOptions, advance: Advance) -> tuple[Findings, bool]:
    judge = Judge(fleet, kind)
    if options.table is None:
        from ottla.pipeline.fleet.topic_check import judge_topic
        from ottla.pipeline.wire.errors import ClientError

        try:
            judge_topic(judge, options.bootstrap, where, advance)
        except ClientError as error:
            raise CommandError(str(error)) from None
        return judge.findings(), True
    has_order = _judge_table(judge, where, advance)
    return judge.findings(), has_order


def _judge_table(judge: Judge, path: str, advance: Advance) -> bool:
    from ottla.pipeline.fleet.table_check import NoFleetTableError, judge_files
    from ottla.pipeline.jobs.found_tables import files_in

    try:
        return judge_files(judge, files_in(path), path, advance)
    except NoFleetTableError as error:
        raise CommandError(f"{path}: {error}") from None


def _row(where: str, found: Findings, has_order: bool, seconds: float) -> dict[str, Any]:
    told = found._asdict()
    told.pop("examples")
    told["reordered"] = found.reordered if has_order else "unknown"
    return {
        "where": where,
        **told,
        "seconds": round(seconds, 2),
        "records/s": round(found.records / seconds),
    }
