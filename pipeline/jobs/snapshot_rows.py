"""The latest record of each key, in Spark's words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
_OF_A_RECORD = ("value", "topic", "offset", "timestamp")


def latest(rows: "DataFrame") -> "DataFrame":
    """In a partition the highest offset counts. A key that is in several (the topic got more of them): the youngest of its latest."""
    of_partition = rows.groupBy("key", "partition").agg(F.max_by(F.struct(*_OF_A_RECORD), "offset").alias("record"))
    youngest = F.struct("record.timestamp", "partition")
    of_key = of_partition.groupBy("key").agg(F.max_by(F.struct("record", "partition"), youngest).alias("latest"))
    found = of_key.select("key", "latest.partition", "latest.record.*")
    return found.where("value IS NOT NULL").select(*COLUMNS)


def later_rows(earlier: "DataFrame", starts: Mapping[int, int]) -> "DataFrame":
    """An earlier snapshot without what was deleted from the log's beginning since: the whole topic does not have it any more."""
    moved = {partition: start for partition, start in starts.items() if start > 0}
    rows = earlier.select(*COLUMNS)
    if not moved:
        return rows
    cases = " ".join(f"WHEN {partition} THEN {start}" for partition, start in sorted(moved.items()))
    return rows.where(f"`offset` >= CASE `partition` {cases} ELSE 0 END")
