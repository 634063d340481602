"""Windows of event time: what the query is. Late records are taken out, and counted, before Spark would drop them uncounted."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs import tables
from ottla.pipeline.jobs.aggregate import AggregateOptions
from ottla.pipeline.jobs.causes import cause_in
from ottla.pipeline.jobs.job_record import JobRecord
from ottla.pipeline.jobs.parsing import parsed
from ottla.pipeline.jobs.streaming import run_query
from ottla.pipeline.jobs.values import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OBSERVED, LATE, CORRUPTED, UNTIMED = "records", "late", "corrupt", "untimed"
BOOTSTRAP, REACHED_BY = "kafka.bootstrap.servers", ("kafka.security.", "kafka.ssl.")
COLUMNS = "columns"
WINDOW, TIME, IS_LATE = "_window", "_time", "_is_late"


def run(spark: "SparkSession", options: AggregateOptions) -> int:
    """Raises CommandError."""
    checkpoint = options.checkpoint
    assert checkpoint is not None
    if options.to_topic is not None:
        require_topic(options.to_topic, cluster_of(options))
    rows = parsed(spark, options.input, options.stream, options.value, is_raw_wanted=False)
    windows = windowed(spark, rows, options, checkpoint)
    named = used(rows, options)
    require_free(named, options)
    if options.input.source == "ottla" and COLUMNS not in options.input.options:
        more = {COLUMNS: ",".join(named)}
        rows = parsed(spark, options.input, options.stream, options.value, is_raw_wanted=False, **more)
        windows = windowed(spark, rows, options, checkpoint)
    record = JobRecord(
        "aggregate", options.target, options.table_format, [], options.value.options(), query_of(options)
    )
    record.keep(checkpoint, may_change_schema=True)
    writer = _to_table(windows, options) if options.table else _to_topic(windows, options)
    beside = None
    if options.table:
        beside = tables.compacting(options.table, options.table_format, options.target_bytes, options.compact_every)
    return run_query(spark, "aggregate", writer, options, checkpoint, target=options.target, beside=beside)


def require_topic(topic: str, cluster_options: Mapping[str, str]) -> None:
    """Before a batch finds out. Raises CommandError."""
    from ottla.pipeline.wire.cluster import Cluster
    from ottla.pipeline.wire.errors import ClientError
    from ottla.pipeline.wire.settings import client_settings

    try:
        named = {name.removeprefix("kafka."): text for name, text in cluster_options.items()}
        with Cluster(client_settings(named)) as cluster:
            is_there = topic in cluster.topics([topic])
    except ClientError as error:
        raise CommandError(str(error)) from error
    if not is_there:
        raise CommandError(
            f"there is no topic {topic} to write to: ottla topics create {topic} -b {cluster_options[BOOTSTRAP]}"
        )


def require_free(columns: Iterable[str], options: AggregateOptions) -> None:
    """What the query puts beside the records' columns takes the place of none that its words name. Raises CommandError."""
    own = {WINDOW, IS_LATE} | ({TIME} - {options.time_column.lower()})
    taken = next((each for each in columns if each.lower() in own), None)
    if taken is not None:
        raise CommandError(
            f"the values have a column {taken}, as the query has one of its own: give theirs a --value-prefix"
        )


def query_of(options: AggregateOptions) -> dict[str, str]:
    """What the state in a checkpoint is of: it cannot go on with another."""
    return {
        "window": options.window,
        "slide": options.slide or options.window,
        "time": options.time_column,
        "by": ", ".join(each.sql for each in options.keys),
        "measures": ", ".join(f"{each.sql} as {each.name}" for each in options.measures),
    }


def windowed(spark: "SparkSession", rows: "DataFrame", options: AggregateOptions, checkpoint: str) -> "DataFrame":
    """A row a window and group. Raises CommandError for SQL that does not fit the columns."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        return _windowed(spark, rows, options, checkpoint)
    except (AnalysisException, ParseException) as error:
        raise CommandError(
            f"{cause_in(error.getMessage()).rstrip('.;')}. The records' columns are {', '.join(rows.columns)}"
        ) from error


def _windowed(spark: "SparkSession", rows: "DataFrame", options: AggregateOptions, checkpoint: str) -> "DataFrame":
    from pyspark.sql import functions as F

    if options.where is not None:
        rows = rows.where(f"({options.where}){f' OR {CORRUPT} IS NOT NULL' if CORRUPT in rows.columns else ''}")
    rows = rows.withColumn(TIME, F.expr(options.time_column).cast("timestamp")).withWatermark(TIME, options.watermark)
    grouped = in_time(spark, _observed_first(rows), options, checkpoint).groupBy(
        WINDOW, *(F.expr(each.sql).alias(each.name) for each in options.keys)
    )
    return grouped.agg(*(F.expr(each.sql).alias(each.name) for each in options.measures)).select(
        F.col(f"{WINDOW}.start").alias("window_start"),
        F.col(f"{WINDOW}.end").alias("window_end"),
        *(each.name for each in (*options.keys, *options.measures)),
    )


def used(rows: "DataFrame", options: AggregateOptions) -> list[str]:
    """Columns that the query's words name: Spark does not tell a Python source, and what is not asked for need not travel."""
    from pyspark.sql import functions as F

    grouped = rows.groupBy(*(F.expr(each.sql) for each in options.keys))
    frames = [rows.select(F.expr(options.time_column)), grouped.agg(*(F.expr(each.sql) for each in options.measures))]
    if options.where is not None:
        frames.append(rows.where(options.where))
    named = {CORRUPT}
    for frame in frames:
        references = frame._jdf.queryExecution().analyzed().references().toList()
        named |= {references.apply(place).name() for place in range(references.size())}
    return [each for each in rows.columns if each in named]


def _observed_first(rows: "DataFrame") -> "DataFrame":
    """Records that do not parse, or have no time, are in no window: they are counted, and left out."""
    from pyspark.sql import functions as F

    is_corrupt = F.col(CORRUPT).isNotNull() if CORRUPT in rows.columns else F.lit(False)
    observed = rows.observe(
        OBSERVED,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(is_corrupt).alias(CORRUPTED),
        F.count_if(F.col(TIME).isNull() & ~is_corrupt).alias(UNTIMED),
    )
    return observed.where(~is_corrupt & F.col(TIME).isNotNull())


def in_time(spark: "SparkSession", rows: "DataFrame", options: AggregateOptions, checkpoint: str) -> "DataFrame":
    """Each record in its windows, without those that were closed before its batch: Spark's own rule, by Spark's own watermark."""
    from pyspark.sql import functions as F

    from ottla.pipeline.jobs import watermarks

    spark.dataSource.register(watermarks.Watermark)
    watermark = spark.read.format(watermarks.NAME).option("checkpoint", checkpoint).load()
    windows = rows.withColumn(WINDOW, F.window(TIME, options.window, options.slide))
    is_late = F.col(f"{WINDOW}.end") <= watermark.scalar()
    marked = windows.withColumn(IS_LATE, is_late).observe(LATE, F.count_if(IS_LATE).alias(LATE))
    return marked.where(~F.col(IS_LATE))


def _to_table(windows: "DataFrame", options: AggregateOptions) -> "DataStreamWriter":
    writer = windows.writeStream.format(tables.FORMATS[options.table_format]).outputMode("append")
    return writer.options(path=options.table, offsetColumns="")


def _to_topic(windows: "DataFrame", options: AggregateOptions) -> "DataStreamWriter":
    """The key is the group, as JSON, so that a group's windows keep their order; the value the whole row."""
    from pyspark.sql import functions as F

    key = F.to_json(F.struct(*(each.name for each in options.keys))) if options.keys else F.lit(None).cast("string")
    rows = windows.select(key.alias("key"), F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"))
    writer = rows.writeStream.format("ottla").outputMode("append")
    return writer.options(topic=options.to_topic or "", **cluster_of(options))


def cluster_of(options: AggregateOptions) -> dict[str, str]:
    """The one that is written to. Where it is the one that is read, how it is reached is known."""
    if options.to_bootstrap is not None:
        return {BOOTSTRAP: options.to_bootstrap}
    same = {name: text for name, text in options.input.options.items() if name.startswith(REACHED_BY)}
    return {BOOTSTRAP: options.input.bootstrap, **same}
