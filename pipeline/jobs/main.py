"""``ottla_job.py JOB ...`` under spark-submit: the jobs of ``ottla spark``, where nothing but the zip may be installed."""

import sys
from collections.abc import Sequence

import click

from ottla.cli.exits import clicks_exits
from ottla.cli.failures import CommandError, one_line
from ottla.cli.spark import spark


def main(words: Sequence[str] | None = None) -> None:
    """Ends the process: 0 done, 1 it could not be done (one line says why), 2 the words are off."""
    try:
        with clicks_exits():
            spark(list(sys.argv[1:] if words is None else words), prog_name="ottla_job.py", standalone_mode=False)
    except (CommandError, OSError) as error:
        click.echo(f"ottla: {one_line(error) if isinstance(error, OSError) else error}", err=True)
        sys.exit(1)
