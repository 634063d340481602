"""Tables as jobs read them: Delta, Parquet with manifests or without, or whatever else Spark reads; and which files they are made of."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.failures import CommandError
from ottla.pipeline.sinks import delta, parquet
from ottla.pipeline.sinks.manifests import FOLDER
from ottla.pipeline.sinks.reading import read_files
from ottla.pipeline.sinks.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUTO, DELTA, MANIFESTS, PARQUET = "auto", "delta", "ottla-parquet", "parquet"
_OURS = {DELTA: delta, MANIFESTS: parquet}


def format_of(path: str, told: str) -> str:
    """What ``auto`` stands for, by what lies there. Raises CommandError where nothing does."""
    if told not in (AUTO, PARQUET):
        return told
    store = Store(path)
    for folder, kind in ((delta.FOLDER, DELTA), (FOLDER, MANIFESTS)):
        if next(store.below(folder), None) is not None:
            return kind
    if next(store.below(), None) is None:
        raise CommandError(f"there is no table at {path}")
    return PARQUET


def files_in(path: str) -> list[str]:
    """The Parquet files that a table is made of, without Spark. Raises CommandError where there is none."""
    kind = format_of(path, AUTO)
    if kind in _OURS:
        return sorted(_OURS[kind].committed_files(path))
    store = Store(path)
    return sorted(store.full(each.path) for each in store.below() if each.path.endswith(".parquet"))


def open_table(spark: "SparkSession", path: str, kind: str) -> tuple["DataFrame", list[str]]:
    """Its rows as of now, and the files that hold them."""
    if kind in _OURS:
        files = sorted(_OURS[kind].committed_files(path))  # one look: somebody may commit behind it
        return of_files(spark, path, kind, files), files
    rows = spark.read.format(kind).load(path)
    return rows, sorted(rows.inputFiles())


def of_files(spark: "SparkSession", path: str, kind: str, files: Sequence[str]) -> "DataFrame":
    """The rows of these files of it, whatever was added since."""
    if kind in _OURS:
        schema = _OURS[kind].read(spark, path).schema.jsonValue()
        return read_files(spark, path, files, schema)
    return spark.read.format(kind).option("basePath", path).load(list(files))
