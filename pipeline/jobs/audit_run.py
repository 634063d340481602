"""The audit at work: on this machine, or as Spark's tasks; and its result."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from ottla.cli.failures import CommandError
from ottla.cli.output import show
from ottla.pipeline.audit.audit import Unit, run, size_bytes, units_of
from ottla.pipeline.audit.compare import audit_partition
from ottla.pipeline.audit.findings import Report, findings_table, joined, replicas_table
from ottla.pipeline.jobs.audit import AuditOptions
from ottla.pipeline.segments.errors import SegmentsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPAWN_BYTES = 256 << 20
"""Less is audited sooner than other processes start."""

FINDING_COLUMNS = ("severity", "kind", "topic", "partition", "node", "offset", "path", "position", "message")
REPLICA_COLUMNS = (
    "topic",
    "partition",
    "node",
    "start_offset",
    "end_offset",
    "high_watermark",
    "batches",
    "records",
    "control_batches",
    "bytes",
)


def run_here(options: AuditOptions) -> int:
    """In processes of this machine; the exit code. Raises CommandError."""
    units, found = _units(options)
    began = time.monotonic()
    total = sum(map(size_bytes, units))
    processes = options.processes if total >= SPAWN_BYTES else 1
    if not sys.stderr.isatty():
        reports = run(units, processes)
    else:
        with click.progressbar(length=total, label="auditing", file=sys.stderr) as bar:
            reports = run(units, processes, lambda report: bar.update(report.bytes))
    return _tell(options, joined([found, *reports]), time.monotonic() - began)


def run_on_spark(spark: "SparkSession", options: AuditOptions) -> int:
    """A task for each partition, the largest first; the exit code. Raises CommandError."""
    units, found = _units(options)
    began = time.monotonic()
    reports = spark.sparkContext.parallelize(units, max(1, len(units))).map(audit_partition).collect()
    return _tell(options, joined([found, *reports]), time.monotonic() - began)


def _units(options: AuditOptions) -> tuple[list[Unit], Report]:
    try:
        units, found = units_of(options.directories, options.topics)
    except SegmentsError as error:
        raise CommandError(str(error)) from None
    if not units:
        raise CommandError(f"no partition of {_asked(options)} in {', '.join(options.directories)}")
    return units, found


def _asked(options: AuditOptions) -> str:
    return ", ".join(sorted(options.topics)) if options.topics else "any topic"


def _tell(options: AuditOptions, report: Report, seconds: float) -> int:
    for path, table in ((options.findings_file, findings_table), (options.replicas_file, replicas_table)):
        if path is not None:
            _write(Path(path), table(report))
    if options.standing:
        show([each._asdict() for each in report.replicas], REPLICA_COLUMNS, options.session.output)
    elif report.findings or options.session.output == "json":
        show([each._asdict() for each in report.findings], FINDING_COLUMNS, options.session.output)
    notes = len(report.findings) - report.faults
    batches = sum(replica.batches for replica in report.replicas)
    click.echo(
        f"{report.faults} faults and {notes} notes in {len(report.replicas)} replicas: {batches} batches,"
        f" {report.bytes / 1e9:.3f} GB, {report.bytes / 1e9 / max(seconds, 1e-9):.2f} GB/s",
        err=True,
    )
    return 1 if report.faults else 0


def _write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        raise CommandError(f"{path}: a name that ends with .parquet or .arrow says how to write it")
