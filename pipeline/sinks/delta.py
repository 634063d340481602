"""`format("ottla-delta")`: a Delta table, exactly once, with nothing but PyPI's deltalake on the driver."""

import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib import parse as urls

from ottla.pipeline.sinks.changes import NONE, Batch, Commit, Compaction, Log
from ottla.pipeline.sinks.errors import SinkError, WriteConflict, space_is_named
from ottla.pipeline.sinks.manifests import FOLDER as MANIFESTS
from ottla.pipeline.sinks.options import TableOptions
from ottla.pipeline.sinks.part_files import PartFile
from ottla.pipeline.sinks.schemas import Change, Schema, fit, nullable, same_partitions
from ottla.pipeline.sinks.store import Store
from ottla.pipeline.sinks.table_sink import TableSink

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "_delta_log"
OFFSETS, QUERY, BATCH, ROWS, INFO = "ottla.offsets", "ottla.query", "ottla.batch", "ottla.rows", "ottla.info"
"""Beside the commit, in its custom metadata."""
COMMIT_ATTEMPTS = 5


class DeltaSink(TableSink):
    @classmethod
    def name(cls) -> str:
        return "ottla-delta"

    @staticmethod
    def log_at(store: Store, options: TableOptions) -> Log:
        return DeltaLog(store, options.storage)


class DeltaLog:
    """Delta's log, by way of delta-rs."""

    def __init__(self, store: Store, storage: Mapping[str, str]) -> None:
        self._store, self._storage = store, dict(storage)
        self._opened: DeltaTable | None = None

    def check(self, schema: Schema, partition_by: tuple[str, ...], merge: bool, overwrite: bool) -> None:
        if (table := self._table()) is not None:
            _fit(self._store.uri, table, schema, partition_by, merge)
        else:
            self._store.require_no(MANIFESTS, "a Parquet table with manifests")

    def commit(self, batch: Batch) -> bool:
        """Tried again only where somebody else came between, and left our batch possible."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        for _ in range(COMMIT_ATTEMPTS):
            table = self._table()
            if table is not None and _came(table, batch):
                self.settle(table.version() - 1)  # whoever committed it may have died before that
                return False
            try:
                with space_is_named(self._store.uri):
                    before = NONE if table is None else table.version()
                    self._create(batch) if table is None else self._append(table, batch)
                    self.settle(before)
                return True
            except CommitFailedError as error:
                self._explain(batch, error)
            except DeltaError as error:
                if table is not None or "already exists" not in str(error):
                    raise SinkError(f"The table {self._store.uri} took no commit: {error}") from error
        raise WriteConflict(f"The table {self._store.uri}: others made and changed it all the while")

    def settle(self, before: int, files: set[str] | None = None) -> None:
        """delta-rs leaves it to the system when the log is on the disk: what came after version ``before``. ``files``: those that were
        synced, where others may not be."""
        if self._store.is_local and (table := self._table()) is not None:
            for path in self.paths() - files if files is not None else ():
                self._store.settle(path)
            for version in range(before + 1, table.version() + 1):
                self._store.settle(f"{FOLDER}/{version:020}.json")

    def holds(self, paths: set[str]) -> set[str]:
        return paths & self.paths()

    def paths(self) -> set[str]:
        """The files of the newest version."""
        table = self._table()
        return set() if table is None else {urls.unquote(path) for path in table.get_add_actions()["path"].to_pylist()}

    def opened(self) -> "DeltaTable":
        """Raises SinkError where there is no table."""
        table = self._table()
        if table is None:
            raise SinkError(f"There is no Delta table at {self._store.uri}")
        return table

    def commits(self, app_id: str) -> list[Commit]:
        return commits(self._store.uri, app_id, self._storage)

    def _table(self) -> "DeltaTable | None":
        """As it is now. To open it is to read its log, to look again is to read what came since. Raises SinkError."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            if self._opened is None:
                self._opened = DeltaTable(_at(self._store), storage_options=self._storage or None)
            else:
                self._opened.update_incremental()
        except DeltaError as error:
            if self._opened is None and isinstance(error, TableNotFoundError):
                return None
            raise SinkError(self._why_closed(str(error).split("\n", 1)[0])) from error
        return self._opened

    def _why_closed(self, told: str) -> str:
        """A power cut leaves zeros of what nobody was told of: no query goes on before they are gone."""
        entries = sorted(name for name in self._store.names(FOLDER) if name.endswith(".json"))
        newest = self._store.read(f"{FOLDER}/{entries[-1]}") if self._store.is_local and entries else b""
        if newest and not newest.strip(b"\0"):
            told = (
                f"its newest log entry, {FOLDER}/{entries[-1]}, is all zeros, as a power cut leaves a commit that was not told to Spark. "
                "Remove that file; the query commits the batch again"
            )
        return f"The table {self._store.uri} cannot be opened: {told}"

    def _create(self, batch: Batch) -> None:
        from deltalake import Schema as DeltaSchema
        from deltalake.transaction import create_table_with_add_actions

        create_table_with_add_actions(
            _at(self._store),
            DeltaSchema.from_json(json.dumps(batch.schema)),
            _adds(batch),
            mode="error",
            partition_by=list(batch.partition_by),
            storage_options=self._storage or None,
            commit_properties=_properties(batch),
        )

    def _append(self, table: "DeltaTable", batch: Batch) -> None:
        change = _fit(self._store.uri, table, batch.schema, batch.partition_by, batch.merge)
        if change.added:
            _widen(table, change.schema, change.added)
        table.create_write_transaction(
            list(_adds(batch)),
            mode="overwrite" if batch.overwrite else "append",
            schema=table.schema(),
            partition_by=list(batch.partition_by),
            commit_properties=_properties(batch),
        )

    def _explain(self, batch: Batch, error: Exception) -> None:
        """The same batch by another hand is no conflict: the next look at the table finds it."""
        table = self._table()
        if table is None or not _came(table, batch):
            raise WriteConflict(
                f"The table {self._store.uri} was changed by somebody else while a batch was committed ({error}). "
                "Nothing of the batch is seen; let one query write to a table, and compact it from the same job."
            ) from error


def committed_files(path: str, storage: Mapping[str, str] | None = None) -> list[str]:
    """What the table's newest version is made of."""
    return open_table(path, storage).file_uris()


def read(spark: "SparkSession", path: str, storage: Mapping[str, str] | None = None) -> "DataFrame":
    """The newest version, with Spark's own Parquet reader: a Spark from PyPI knows no Delta."""
    from ottla.pipeline.sinks.reading import read_files

    table = open_table(path, storage)
    return read_files(spark, path, table.file_uris(), json.loads(table.schema().to_json()))


def last_version(path: str, app_id: str, storage: Mapping[str, str] | None = None) -> int | None:
    """The last batch of that query (or txnAppId) that the table holds."""
    table = DeltaLog(Store(path), storage or {})._table()
    return None if table is None else table.transaction_version(app_id)


def commits(path: str, app_id: str | None = None, storage: Mapping[str, str] | None = None) -> list[Commit]:
    """Those that the log still tells of, newest last."""
    history = reversed(open_table(path, storage).history())
    told = [each for each in history if BATCH in each and app_id in (None, each[QUERY])]
    return [
        Commit(
            each["version"],
            each[QUERY],
            int(each[BATCH]),
            json.loads(each[OFFSETS]),
            int(each[ROWS]),
            each["timestamp"],
            each.get(INFO, ""),
        )
        for each in told
    ]


def compact(path: str, target_bytes: int = 128 << 20, storage: Mapping[str, str] | None = None) -> Compaction:
    """Small files become large ones. A query may append meanwhile; who overwrites or deletes is in conflict.

    delta-rs commits before anything is on the disk, so a power cut in between leaves a version without its files.
    """
    from deltalake import WriterProperties
    from deltalake.exceptions import CommitFailedError

    log = DeltaLog(Store(path), storage or {})
    table = log.opened()
    version, files = table.version(), log.paths()
    try:
        done = table.optimize.compact(target_size=target_bytes, writer_properties=WriterProperties(compression="ZSTD"))
    except CommitFailedError as error:
        raise WriteConflict(
            f"The table {path} was rewritten by somebody else while it was compacted ({error})"
        ) from error
    log.settle(version, files)
    before = len(files)
    added = json.loads(done["filesAdded"]) if isinstance(done["filesAdded"], str) else done["filesAdded"]
    after = before + done["numFilesAdded"] - done["numFilesRemoved"]
    return Compaction(before, after, int(added["totalSize"]))


def vacuum(
    path: str, older_than_hours: float = 168, dry_run: bool = False, storage: Mapping[str, str] | None = None
) -> list[str]:
    """Removes what no version of that age needs: compacted files, and what killed attempts left."""
    return open_table(path, storage).vacuum(
        retention_hours=math.ceil(older_than_hours), dry_run=dry_run, enforce_retention_duration=False, full=True
    )


def open_table(path: str, storage: Mapping[str, str] | None = None) -> "DeltaTable":
    return DeltaLog(Store(path), storage or {}).opened()


def _came(table: "DeltaTable", batch: Batch) -> bool:
    last = table.transaction_version(batch.app_id) if batch.app_id else None
    return last is not None and last >= batch.version


def _fit(path: str, table: "DeltaTable", schema: Schema, partition_by: tuple[str, ...], merge: bool) -> Change:
    same_partitions(path, table.metadata().partition_columns, partition_by)
    return fit(path, nullable(json.loads(table.schema().to_json())), schema, merge)


def _widen(table: "DeltaTable", schema: Schema, added: tuple[str, ...]) -> None:
    from deltalake import Schema as DeltaSchema

    fields = [field for field in schema["fields"] if field["name"] in added]
    table.alter.add_columns(DeltaSchema.from_json(json.dumps({"type": "struct", "fields": fields})).fields)
    table.update_incremental()


def _adds(batch: Batch) -> "list[AddAction]":
    return [_add(file, batch.partition_by) for file in batch.files]


def _add(file: PartFile, partition_by: tuple[str, ...]) -> "AddAction":
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(zip(partition_by, file.values, strict=True)),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.statistics,
    )


def _properties(batch: Batch) -> "CommitProperties":
    from deltalake.transaction import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={
            QUERY: batch.app_id,
            BATCH: batch.version,
            OFFSETS: json.dumps(batch.offsets),
            **({INFO: batch.info} if batch.info else {}),
            ROWS: batch.rows,
        },
        app_transactions=[Transaction(batch.app_id, batch.version)] if batch.app_id else None,
    )


def _at(store: Store) -> str:
    return store.root if store.is_local else store.uri
