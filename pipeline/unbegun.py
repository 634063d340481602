"""A query that died while it wrote down its very first batch."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNFINISHED = re.compile(r"\.\d+\..+\.tmp")
"""Spark writes a batch's offsets under such a name, and renames the file when it is whole."""


def clear_unbegun(spark: "SparkSession", checkpoint: str) -> list[str]:
    """Makes a checkpoint in which no batch was ever planned one to begin with; what was removed. Call it before the query is started.

    Spark (since 4.1) begins no query where a folder of the checkpoint has a file and ``offsets`` has no batch, and whoever is killed, or
    stopped, while the first batch is written down leaves such a file: STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY, at every start from then
    on. Nothing was read by then, so nothing is lost with it. Any other file stays, and Spark's refusal with it: then batches were there.
    """
    context: Any = spark.sparkContext  # Hadoop's view: it knows each place that Spark knows
    folder = context._jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())
    found = [each.getPath().getName() for each in files.listStatus(folder)] if files.exists(folder) else []
    removed = unbegun(found)
    for name in removed:
        files.delete(context._jvm.org.apache.hadoop.fs.Path(folder, name), False)
    return removed


def unbegun(names: Iterable[str]) -> list[str]:
    """What is to go of a folder with ``names``: all of it, or nothing."""
    names = list(names)
    return names if all(UNFINISHED.fullmatch(name) for name in names) else []
