"""The rows of a replay: which of the table's, in which order, as what records."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.places import EARLIEST, Place
from ottla.pipeline.jobs.replay import ReplayOptions
from ottla.pipeline.jobs.replay_plan import Extent, chunks_by_column, chunks_by_offset, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUFFICIENT_TASKS = 64
_PLACE = ("topic", "partition", "offset")
_ACCURACY = 100_000
_AS_NUMBER = {"timestamp": "unix_micros(`{}`)", "date": "unix_date(`{}`)"}
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@dataclass(frozen=True)
class Rows:
    """``order``: an expression of SQL whose numbers say which row comes first; None: the offsets do."""

    table: "DataFrame"
    options: ReplayOptions
    order: str | None

    def chunk(self, condition: str, tasks: int) -> "DataFrame":
        """The rows of a chunk as records. Started again, the same rows are in the same task in the same order."""
        rows = self.table.where(condition)
        if self.order is None:
            places = [name for name in _PLACE if name in rows.columns]
            rows = rows.repartition(tasks, *places[:-1]).sortWithinPartitions(*places)
        else:
            together = "partition" if self.options.preserve_partition else self._together()
            ties = [name for name in ("partition", "offset", "key", "value") if name in rows.columns]
            rows = rows.repartition(tasks, together).sortWithinPartitions(F.expr(self.order), *ties)
        return rows.select(*self._columns())

    def _together(self) -> str:
        return "key" if "key" in self.table.columns else "value"

    def _columns(self) -> list[str]:
        kept = ["key", "value", "headers"]
        kept += ["partition"] * self.options.preserve_partition + ["timestamp"] * self.options.preserve_timestamps
        return [name for name in kept if name in self.table.columns]


def rows_of(table: "DataFrame", options: ReplayOptions) -> Rows:
    """Raises CommandError for a table that lacks a column that is needed."""
    _require(table, "value", "what to send")
    if options.preserve_partition:
        _require(table, "partition", "--preserve-partition")
    if options.preserve_timestamps:
        _require(table, "timestamp", "--preserve-timestamps")
    if options.order_by is None:
        for name in ("partition", "offset"):
            _require(table, name, "the order of the rows (or name --order-by)")
    if options.where is not None:
        table = table.where(options.where)
    for place, sign in ((options.start, ">="), (options.until, "<")):
        condition = condition_of(place, sign)
        if condition is not None:
            _require(table, "timestamp" if place.time_ms is not None else "offset", "--from and --until")
            table = table.where(condition)
    return Rows(table, options, _order(table, options.order_by))


def condition_of(place: Place, sign: str) -> str | None:
    """``sign``: >= for where rows begin, < for where they end. None: anywhere."""
    if place.time_ms is not None:
        return f"`timestamp` {sign} timestamp_millis({place.time_ms})"
    if place.offsets is None:
        if (place.word == EARLIEST) == (sign == ">="):
            return None
        return "false"
    parts = []
    for topic, partitions in place.offsets.items():
        for partition, offset in partitions.items():
            here = f"`topic` = {quoted(topic)} AND `partition` = {int(partition)}"
            bound = {-2: "true" if sign == ">=" else "false", -1: "false" if sign == ">=" else "true"}
            parts.append(f"WHEN {here} THEN {bound.get(offset, f'`offset` {sign} {offset}')}")
    return f"CASE {' '.join(parts)} ELSE true END" if parts else None


def _order(table: "DataFrame", column: str | None) -> str | None:
    if column is None:
        return None
    _require(table, column, "--order-by")
    kind = dict(table.dtypes)[column].partition("(")[0]
    if kind not in _NUMBERS and kind not in _AS_NUMBER:
        raise CommandError(
            f"--order-by {column}: it is a {kind}; rows can be put in the order of numbers, dates and times"
        )
    name = column.replace("`", "``")
    expression = _AS_NUMBER.get(kind, "`{}`").format(name)
    missing = table.where(F.expr(expression).isNull()).count()
    if missing:
        raise CommandError(
            f"--order-by {column}: {missing:,} rows have none; leave them out with --where '{column} IS NOT NULL'"
        )
    return expression


def extents_of(rows: Rows) -> list[Extent]:
    """What there is to send, by partition; all in one where the order is a column's."""
    table = rows.table
    if rows.order is not None:
        count = table.count()
        return [Extent("", -1, 0, count - 1, count)] if count else []
    topic = F.col("topic") if "topic" in table.columns else F.lit("")
    grouped = table.groupBy(topic.alias("topic"), "partition").agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count(F.lit(1)).alias("rows"),
        F.count("offset").alias("placed"),
    )
    found = [extent_of(*row) for row in grouped.orderBy("topic", "partition").collect()]
    topics = sorted({each.topic for each in found})
    if len(topics) > 1:
        raise CommandError(
            f'the table has rows of {", ".join(topics)}: choose with --where "topic = {quoted(topics[0])}"'
        )
    return found


def extent_of(
    topic: str | None, partition: int | None, first: int | None, last: int | None, rows: int, placed: int
) -> Extent:
    """``placed``: how many of the rows have an offset. Those without are in no chunk. Raises CommandError."""
    if topic is None or partition is None or first is None or last is None or placed < rows:
        raise CommandError(
            "the table has rows without a topic, partition or offset: leave them out with --where"
            " 'partition IS NOT NULL AND offset IS NOT NULL', or send all in the order of a column (--order-by)"
        )
    return Extent(topic, partition, first, last, rows)


def chunks_of(rows: Rows, extents: list[Extent], chunk: int) -> list[str]:
    if rows.order is None:
        return chunks_by_offset(extents, chunk)
    count = max(1, -(-sum(each.rows for each in extents) // chunk))
    if count == 1:
        return ["true"]
    shares = ", ".join(str(number / count) for number in range(1, count))
    borders = rows.table.select(F.expr(f"percentile_approx({rows.order}, array({shares}), {_ACCURACY})")).first()
    assert borders is not None
    return chunks_by_column(rows.order, map(str, borders[0]))


def tasks_of(rows: Rows, extents: list[Extent]) -> int:
    """No more than there are partitions, or cores."""
    cores = rows.table.sparkSession.sparkContext.defaultParallelism
    return max(1, min(cores, SUFFICIENT_TASKS, len(extents) if rows.order is None else SUFFICIENT_TASKS))


def _require(table: "DataFrame", column: str, why: str) -> None:
    if column not in table.columns:
        raise CommandError(f"the table has no column {column}, which {why} needs; it has {', '.join(table.columns)}")
