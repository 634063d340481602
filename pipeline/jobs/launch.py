"""Running a job: what it needs is looked for, the session starts, and what goes wrong becomes one line and an exit code."""

import importlib
import sys
import traceback
from typing import Any

import click

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs import missing
from ottla.pipeline.jobs.stopping import Stopping
from ottla.pipeline.jobs.words import SessionWords


def launch(job: str, target: str, options: Any) -> None:
    """Calls ``target`` (module:function) with the session and the options, which have ``session``. Raises Exit, CommandError."""
    from ottla.pipeline.jobs.session import Session, is_submitted

    words: SessionWords = options.session
    missing.require("pyspark", "numpy", "pyarrow")
    if not is_submitted():
        missing.require_java()
    module, _, name = target.partition(":")
    run = getattr(importlib.import_module(module), name)
    if sys.stderr.isatty():
        click.echo("starting Spark ...", err=True)
    with Stopping() as stopping:
        session = _started(Session, job, words)
    if stopping.is_asked:
        session.stop(is_good=True)
        click.echo("stopped before it began", err=True)
        raise click.exceptions.Exit(0)
    code, error = 1, None
    try:
        code = run(session.spark, options) or 0
    except CommandError as fault:
        error = fault
    except Exception as fault:  # noqa: BLE001 - its session ends in any case
        error = _told(fault)
    log = session.stop(is_good=error is None)
    if error is not None:
        if log is not None:
            click.echo(f"Spark's log is {log}", err=True)
        raise error
    raise click.exceptions.Exit(code)


def _started(make: Any, job: str, words: SessionWords) -> Any:
    try:
        return make(job, words)
    except Exception as error:
        raise CommandError(f"Spark does not start: {cause_of(error)}") from error


def _told(error: Exception) -> CommandError:
    """What Spark, a cluster or a table says has a cause that can be told; anything else is a fault of ours, and shows where."""
    from ottla.pipeline.jobs.causes import cause, is_sparks
    from ottla.pipeline.sinks.errors import SinkError
    from ottla.pipeline.wire.errors import ClientError

    if isinstance(error, ClientError | SinkError):
        return CommandError(str(error))
    if not is_sparks(error):
        traceback.print_exception(error, file=sys.stderr)
    return CommandError(cause(error))


def cause_of(error: Exception) -> str:
    from ottla.pipeline.jobs.causes import cause

    return cause(error)
