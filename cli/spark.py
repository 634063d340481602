"""``ottla spark``: jobs that turn topics into tables and tables into topics."""

import click

from ottla.cli.lazy import LazyGroup
from ottla.pipeline.jobs.registry import JOBS


@click.command(cls=LazyGroup, table=JOBS, title="Jobs", context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Run a job on Spark: topics become tables, and tables topics.

    Spark runs on this machine (--master local[*]), or on the cluster that --master names. On a cluster that has its own way of
    starting things, `ottla spark package` writes what spark-submit takes: the jobs and their words are the same there.
    """
