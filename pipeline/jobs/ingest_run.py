"""Landing topics in a table: what the query is, and what is done beside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs import tables
from ottla.pipeline.jobs.ingest import IngestOptions
from ottla.pipeline.jobs.job_record import JobRecord
from ottla.pipeline.jobs.parsing import parsed
from ottla.pipeline.jobs.streaming import run_query
from ottla.pipeline.jobs.values import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_COLUMN = "_ingest_batch"
DATE_COLUMN = "date"


def run(spark: "SparkSession", options: IngestOptions) -> int:
    """Raises CommandError."""
    rows = landed(spark, options)
    require_columns(rows.columns, options)
    record = JobRecord(
        "ingest", options.table, options.table_format, list(options.partition_by), options.value.options()
    )
    record.keep(options.checkpoint, may_change_schema=options.merge_schema)
    writer = rows.writeStream.format(tables.FORMATS[options.table_format]).options(
        **sink_options(options, rows.columns)
    )
    beside = tables.compacting(options.table, options.table_format, options.target_bytes, options.compact_every)
    return run_query(spark, "ingest", writer, options, options.checkpoint, target=options.table, beside=beside)


def landed(spark: "SparkSession", options: IngestOptions) -> "DataFrame":
    """The rows as the table has them, but for what the sink adds."""
    from pyspark.sql import functions

    rows = parsed(spark, options.input, options.stream, options.value)
    if DATE_COLUMN in (each.lower() for each in rows.columns):  # Spark would put the day in the place of a Date, too
        return rows
    return rows.withColumn(DATE_COLUMN, functions.to_date("timestamp"))


def require_columns(columns: Sequence[str], options: IngestOptions) -> None:
    """Before a batch is planned. Raises CommandError."""
    absent = [each for each in options.partition_by if each not in (*columns, BATCH_COLUMN)]
    if absent:
        raise CommandError(f"--partition-by {','.join(absent)}: the columns are {', '.join(columns)}")


def sink_options(options: IngestOptions, columns: Sequence[str]) -> dict[str, str]:
    chosen = {
        "path": options.table,
        "partitionBy": ",".join(options.partition_by),
        "batchColumn": BATCH_COLUMN,
        "targetFileBytes": str(options.target_bytes),
        "mergeSchema": str(options.merge_schema).lower(),
    }
    if options.dead_letter_table is not None:
        chosen |= {"deadLetterPath": options.dead_letter_table, "deadLetterColumn": CORRUPT}
        chosen |= {"deadLetterOnly": "value"} if "value" in columns else {}
    return chosen
