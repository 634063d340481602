"""Writing a batch of rows to a table (and those that do not parse to another): tasks write files, the driver commits them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.changes import Batch, Log, Part, beyond, together
from ottla.pipeline.sinks.errors import ReplayDiffers
from ottla.pipeline.sinks.options import TableOptions, dead_schema, table_schema
from ottla.pipeline.sinks.part_files import PartFile, PartFiles
from ottla.pipeline.sinks.ranges import Ranges, join, ranges, tells_offsets
from ottla.pipeline.sinks.schemas import Schema
from ottla.pipeline.sinks.store import Store

LogAt = Callable[[Store, TableOptions], Log]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    query: str
    batch: int
    main: Part
    dead: Part


NOTHING = Part((), {})


class TableWrite:
    """Made on the driver, pickled to the tasks, made again on the driver to commit."""

    def __init__(self, log_at: LogAt, options: TableOptions, rows: Schema, arrow: pa.Schema, overwrite: bool) -> None:
        self._log_at, self._options, self._arrow, self._overwrite = log_at, options, arrow, overwrite
        self._logs: dict[str, Log] = {}
        self._store = Store(options.path)
        self._schema = table_schema(options, rows)
        self._dead_store = Store(options.dead_path) if options.dead_path else None
        self._dead_schema = dead_schema(options, rows)
        self._log(self._store).check(self._schema, options.partition_by, options.merge, overwrite)
        if self._dead_store:
            self._log(self._dead_store).check(self._dead_schema, (), True, False)

    def write(self, batches: Iterable[pa.RecordBatch], attempt: Attempt) -> Written:
        main = _Table(self._store, self._options, self._options.partition_by, attempt)
        dead = _Table(self._dead_store or self._store, self._options, (), attempt)
        try:
            for batch in batches:
                for rows, table in self._sorted(_as(batch, self._arrow), main, dead):
                    table.take(self._with_batch(rows, attempt.batch))
            return Written(attempt.query, attempt.batch, main.close(), dead.close())
        except BaseException:
            main.discard()
            dead.discard()
            raise

    def commit(self, messages: Sequence[Any], app_id: str, version: int, *, is_stream: bool = False) -> bool:
        """Both tables, each by itself: what a kill between them leaves undone is done by the replay. ``is_stream``: a number that is there
        already must bring what it brought (ReplayDiffers)."""
        written = [message for message in messages if isinstance(message, Written)]
        files, offsets = together(each.dead for each in written)
        if self._dead_store and files:
            dead = Batch(app_id, version, self._dead_schema, (), files, offsets, merge=True)
            self._commit(self._dead_store, dead, is_stream)
        files, offsets = together(each.main for each in written)
        if not files and not self._overwrite:
            return False
        if self._options.offsets is not None:
            offsets = self._options.offsets
        partition_by, merge = self._options.partition_by, self._options.merge
        batch = Batch(
            app_id, version, self._schema, partition_by, files, offsets, merge, self._overwrite, self._options.info
        )
        return self._commit(self._store, batch, is_stream)

    def _commit(self, store: Store, batch: Batch, is_stream: bool) -> bool:
        if self._log(store).commit(batch):
            return True
        self._remove(store, batch.files)
        if is_stream and (found := beyond(batch, self._log(store).commits(batch.app_id))):
            raise ReplayDiffers(
                f"Batch {batch.version} of {batch.app_id} is in the table {store.uri} already, and reaches further now: {'; '.join(found)}. "
                "The query's checkpoint went back, or two queries have copies of one: begin with a new checkpoint where the table ends (commits(path) says where)"
            )
        return False

    def abort(self, messages: Sequence[Any]) -> None:
        """Of the tasks that wrote all they had; the others removed their files themselves, if they could."""
        written = [message for message in messages if isinstance(message, Written)]
        self._remove(self._store, [file for each in written for file in each.main.files])
        if self._dead_store:
            self._remove(self._dead_store, [file for each in written for file in each.dead.files])

    def _remove(self, store: Store, files: Sequence[PartFile]) -> None:
        """Never what the table holds: a commit may fail behind its own success."""
        if paths := {file.path for file in files}:
            for path in paths - self._log(store).holds(paths):
                store.delete(path)

    def _log(self, store: Store) -> Log:
        """Opened once, and looked at again each time."""
        if store.uri not in self._logs:
            self._logs[store.uri] = self._log_at(store, self._options)
        return self._logs[store.uri]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_logs": {}}

    def _sorted(
        self, rows: pa.RecordBatch, main: "_Table", dead: "_Table"
    ) -> Iterator[tuple[pa.RecordBatch, "_Table"]]:
        name = self._options.dead_column
        if not name:
            yield rows, main
            return
        reasons, left_out = rows[name], [name, *self._options.dead_only]
        if reasons.null_count == len(reasons):
            yield rows.drop_columns(left_out), main
            return
        parsed = pc.is_null(reasons)
        yield rows.filter(parsed).drop_columns(left_out), main
        yield rows.filter(pc.invert(parsed)), dead

    def _with_batch(self, rows: pa.RecordBatch, batch: int) -> pa.RecordBatch:
        if not self._options.batch_column:
            return rows
        return rows.append_column(self._options.batch_column, pa.repeat(pa.scalar(batch, pa.int64()), rows.num_rows))


class _Table:
    """One of the two, in one task."""

    def __init__(self, store: Store, options: TableOptions, partition_by: tuple[str, ...], attempt: Attempt) -> None:
        self._files = PartFiles(store, options, partition_by, attempt)
        self._columns = options.offset_columns
        self._ranges: Ranges = {}

    def take(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if tells_offsets(rows.schema, self._columns):
            topic, partition, offset = self._columns
            join(self._ranges, ranges(rows, (topic, partition, offset)))
        self._files.write(rows)

    def close(self) -> Part:
        return Part(self._files.close(), self._ranges)

    def discard(self) -> None:
        self._files.discard()


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Spark may send texts and bytes with long offsets."""
    return batch if batch.schema.equals(schema) else batch.cast(schema)
