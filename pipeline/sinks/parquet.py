"""`format("ottla-parquet")`: Parquet files, and manifests that say which of them count. Readers of the bare folder see uncommitted ones too."""

import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from ottla.pipeline.sinks import manifests
from ottla.pipeline.sinks.changes import Batch, Commit, Compaction, Log
from ottla.pipeline.sinks.delta import FOLDER as DELTA_LOG
from ottla.pipeline.sinks.errors import SinkError, space_is_named
from ottla.pipeline.sinks.manifests import Table
from ottla.pipeline.sinks.options import TableOptions
from ottla.pipeline.sinks.part_files import PartFile
from ottla.pipeline.sinks.partitions import folder
from ottla.pipeline.sinks.schemas import Change, Schema, fit, same_partitions
from ottla.pipeline.sinks.store import Store
from ottla.pipeline.sinks.table_sink import TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ParquetSink(TableSink):
    @classmethod
    def name(cls) -> str:
        return "ottla-parquet"

    @staticmethod
    def log_at(store: Store, options: TableOptions) -> Log:
        return ManifestLog(store)


class ManifestLog:
    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, schema: Schema, partition_by: tuple[str, ...], merge: bool, overwrite: bool) -> None:
        table = manifests.newest(self._store)
        if table.schema is None:
            self._store.require_no(DELTA_LOG, "a Delta table")
        _fit(self._store.uri, table, schema, partition_by, merge)

    def commit(self, batch: Batch) -> bool:
        """Whoever finds his number taken looks again: the batch may be there now, or the table another."""
        for _ in range(manifests.ATTEMPTS):
            table = manifests.newest(self._store)
            if batch.app_id and table.last.get(batch.app_id, -1) >= batch.version:
                self._store.settle(manifests.name(table.version))  # whoever committed it may have died before that
                return False
            change = _fit(self._store.uri, table, batch.schema, batch.partition_by, batch.merge)
            if manifests.put(self._store, table, _manifest(table, batch, change.schema)):
                return True
        raise manifests.conflict(self._store)

    def holds(self, paths: set[str]) -> set[str]:
        return paths & manifests.newest(self._store).files.keys()

    def commits(self, app_id: str) -> list[Commit]:
        return commits(self._store.uri, app_id)


def committed_files(path: str) -> list[str]:
    """What the table's newest version is made of."""
    store, table = _opened(path)
    return [store.full(name) for name in table.files]


def read(spark: "SparkSession", path: str) -> "DataFrame":
    from ottla.pipeline.sinks.reading import read_files

    store, table = _opened(path)
    assert table.schema is not None
    return read_files(spark, path, [store.full(name) for name in table.files], table.schema)


def dataset(path: str) -> Any:
    """For pyarrow, DuckDB, Polars and who else takes its datasets."""
    from pyarrow import dataset as datasets
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    store, table = _opened(path)
    schema = to_arrow_schema(StructType.fromJson(table.schema or {}), timezone="UTC")
    by = datasets.partitioning(pa.schema([schema.field(name) for name in table.partition_by]), flavor="hive")
    names = [f"{store.root}/{name}" for name in table.files]
    return datasets.dataset(
        names, schema, "parquet", filesystem=store.files, partitioning=by, partition_base_dir=store.root
    )


def last_version(path: str, app_id: str) -> int | None:
    """The last batch of that query (or txnAppId) that the table holds."""
    return manifests.newest(Store(path)).last.get(app_id)


def commits(path: str, app_id: str | None = None) -> list[Commit]:
    """Those that manifests still tell of, newest last; compactions are none."""
    told = (manifests.commit_of(each) for each in manifests.told(Store(path)) if each["query"] is not None)
    return [each for each in told if app_id in (None, each.app_id)]


def compact(path: str, target_bytes: int = 128 << 20) -> Compaction:
    """Small files of one partition become a large one. Queries may append meanwhile, and nobody loses by it."""
    store, table = _opened(path)
    before, written = len(table.files), 0
    for group in _groups(table, target_bytes):
        one = _join(store, table, group)
        if not _replace(store, group, one):
            store.delete(one["path"])
            break  # somebody else compacts
        written += one["size"]
    return Compaction(before, len(manifests.newest(store).files), written)


def vacuum(path: str, older_than_hours: float = 168, dry_run: bool = False) -> list[str]:
    """Removes files that no manifest of that age or younger needs: compacted ones, and what killed attempts left."""
    store, table = _opened(path)
    limit_s = time.time() - older_than_hours * 3600
    kept = set(table.files)
    for manifest in manifests.told(store):
        if manifest["time"] / 1000 > limit_s:
            kept.update(manifest["remove"])
    needed = manifests.needed(store)
    gone = sorted(
        each.path
        for each in store.below()
        if each.path not in kept and each.path not in needed and each.modified_s <= limit_s and _is_ours(each.path)
    )
    for name in () if dry_run else gone:
        store.delete(name)
    return gone


def _is_ours(path: str) -> bool:
    return path.endswith(".parquet") or path.startswith(manifests.FOLDER)


def _opened(path: str) -> tuple[Store, Table]:
    store = Store(path)
    table = manifests.newest(store)
    if table.schema is None:
        raise SinkError(f"There is no table at {path}: no {manifests.FOLDER}")
    return store, table


def _fit(path: str, table: Table, schema: Schema, partition_by: tuple[str, ...], merge: bool) -> Change:
    if table.schema is None:
        return Change(schema, ())
    same_partitions(path, table.partition_by, partition_by)
    return fit(path, table.schema, schema, merge)


def _manifest(table: Table, batch: Batch, schema: Schema) -> dict[str, Any]:
    return {
        "query": batch.app_id,
        "batch": batch.version,
        "offsets": batch.offsets,
        "info": batch.info,
        "add": [_entry(file) for file in batch.files],
        "remove": list(table.files) if batch.overwrite else [],
        "last": {**table.last, batch.app_id: batch.version} if batch.app_id else table.last,
        "schema": schema,
        "partitionBy": list(batch.partition_by),
    }


def _entry(file: PartFile) -> dict[str, Any]:
    return {"path": file.path, "size": file.size, "rows": file.rows, "values": list(file.values)}


def _groups(table: Table, target_bytes: int) -> Iterator[list[dict[str, Any]]]:
    """Neighbours in the order of writing, so that what was in order stays so."""
    by_values: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for file in table.files.values():
        if file["size"] < target_bytes // 2:
            by_values.setdefault(tuple(file["values"]), []).append(file)
    for files in by_values.values():
        group: list[dict[str, Any]] = []
        for file in files:
            if group and sum(each["size"] for each in group) + file["size"] > target_bytes:
                yield from [group] if len(group) > 1 else []
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def _join(store: Store, table: Table, group: list[dict[str, Any]]) -> dict[str, Any]:
    where = folder(tuple(table.partition_by), tuple(group[0]["values"]))
    path = f"{where}{'/' if where else ''}part-compacted-{uuid.uuid4().hex}.zstd.parquet"
    schema = pa.unify_schemas([_schema_of(store, each["path"]) for each in group])
    with (
        space_is_named(store.uri),
        store.create(path) as sink,
        parquet.ParquetWriter(sink, schema, compression="zstd") as writer,
    ):
        for each in group:
            with store.open(
                each["path"]
            ) as source:  # one at a time: a group may have more files than a process may open
                file = parquet.ParquetFile(source)
                for index in range(file.num_row_groups):
                    writer.write_table(_widened(file.read_row_group(index), schema))
    store.settle(path)
    return {
        "path": path,
        "size": store.size(path),
        "rows": sum(each["rows"] for each in group),
        "values": group[0]["values"],
    }


def _schema_of(store: Store, path: str) -> pa.Schema:
    with store.open(path) as source:
        return parquet.ParquetFile(source).schema_arrow


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for each in schema:
        if each.name not in rows.schema.names:
            rows = rows.append_column(each, pa.nulls(rows.num_rows, each.type))
    return rows.select(schema.names).cast(schema)


def _replace(store: Store, group: list[dict[str, Any]], one: dict[str, Any]) -> bool:
    """False: one of the files is no part of the table any more."""
    gone = [each["path"] for each in group]
    for _ in range(manifests.ATTEMPTS):
        table = manifests.newest(store)
        if not table.files.keys() >= set(gone):
            return False
        manifest: dict[str, Any] = {"query": None, "batch": None, "offsets": {}, "add": [one], "remove": gone}
        told = {**manifest, "last": table.last, "schema": table.schema, "partitionBy": table.partition_by}
        if manifests.put(store, table, told):
            return True
    raise manifests.conflict(store)
