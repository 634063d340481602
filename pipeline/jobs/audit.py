"""``ottla spark audit``: all brokers' log directories against each other. It needs Spark only where it shall run on Spark."""

import os
from dataclasses import dataclass

import click

from ottla.pipeline.jobs.words import SessionWords, session_words


@dataclass(frozen=True)
class AuditOptions:
    """What is audited, and where the result goes."""

    session: SessionWords
    directories: tuple[str, ...]
    topics: frozenset[str] | None
    processes: int
    standing: bool
    findings_file: str | None
    replicas_file: str | None


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIRECTORY...")
@click.option("--topics", metavar="A,B", help="These topics only; else all, internal ones too.")
@click.option(
    "--processes", type=click.IntRange(1), help="Partitions audited at once on this machine.  [default: its processors]"
)
@click.option("--on-spark", is_flag=True, help="As tasks of Spark: the directories must be there for each worker.")
@click.option("--replicas", "standing", is_flag=True, help="Print what each replica holds, instead of the findings.")
@click.option("--findings-file", metavar="FILE", help="Write the findings there: .parquet, or .arrow.")
@click.option("--replicas-file", metavar="FILE", help="Write what each replica holds there: .parquet, or .arrow.")
@session_words
def audit(
    directories: tuple[str, ...],
    topics: str | None,
    processes: int | None,
    on_spark: bool,
    standing: bool,
    findings_file: str | None,
    replicas_file: str | None,
    session: SessionWords,
) -> None:
    """Check log directories of stopped nodes, or copies of them, and compare the replicas in them.

    DIRECTORY is a node's log directory, a partition's in it, or one that holds several nodes'; it may be a glob. Every batch's CRC,
    the order of offsets, epochs and producers' sequences are checked, and that replicas have the same batches below the
    high watermark. Exits with 1 when there is a fault; notes are none.
    """
    from ottla.pipeline.jobs import missing
    from ottla.pipeline.jobs.launch import launch

    chosen = frozenset(each.strip() for each in topics.split(",")) if topics else None
    options = AuditOptions(
        session, directories, chosen, processes or os.cpu_count() or 1, standing, findings_file, replicas_file
    )
    if on_spark:
        launch("audit", "ottla.pipeline.jobs.audit_run:run_on_spark", options)
        return
    missing.require("numpy", "pyarrow")
    from ottla.pipeline.jobs.audit_run import run_here

    raise click.exceptions.Exit(run_here(options))
