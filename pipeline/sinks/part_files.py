"""The Parquet files of one task's attempt: by partition, rolled at a size, with all of them gone if the attempt fails."""

import contextlib
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.errors import space_is_named
from ottla.pipeline.sinks.options import TableOptions
from ottla.pipeline.sinks.partitions import Values, folder, split
from ottla.pipeline.sinks.statistics import statistics
from ottla.pipeline.sinks.store import Store

ROW_GROUP_BYTES = 64 << 20
BUFFERED_BYTES_MAX = 128 << 20
"""Of all partitions together: a task with a thousand of them holds no more than one with two."""
OPEN_MAX = 64
COUNTING = ("offset", "timestamp")
"""Columns that mostly rise: differences take a tenth of the room."""


class PartFile(NamedTuple):
    path: str
    size: int
    rows: int
    values: Values
    statistics: str


@dataclass
class _Part:
    values: Values
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_bytes: int = 0
    path: str = ""
    sink: Any = None
    writer: Any = None
    rows: int = 0
    metadata: list[parquet.FileMetaData] = field(default_factory=list)


class PartFiles:
    def __init__(self, store: Store, options: TableOptions, columns: tuple[str, ...], attempt: Attempt) -> None:
        self._store, self._options, self._columns, self._prefix = store, options, columns, attempt.prefix
        self._parts: dict[Values, _Part] = {}
        self._made: list[str] = []
        self._done: list[PartFile] = []
        self._held_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        with space_is_named(self._store.uri):
            for values, rows in split(batch, self._columns):
                self._take(values, rows)

    def close(self) -> tuple[PartFile, ...]:
        with space_is_named(self._store.uri):
            while self._parts:
                self._end(next(iter(self._parts.values())))
        return tuple(self._done)

    def discard(self) -> None:
        """Nothing of this attempt stays, whatever it failed on."""
        for part in self._parts.values():
            if part.writer is not None:
                part.writer.is_open = False  # or it would write its footer when it is collected
                with contextlib.suppress(OSError):
                    part.sink.close()
        for path in self._made:
            with contextlib.suppress(OSError):
                self._store.delete(path)

    def _take(self, values: Values, rows: pa.RecordBatch) -> None:
        part = self._parts.pop(values, None) or _Part(values)
        self._parts[values] = part  # the one that was used last stands last
        part.held.append(rows)
        part.held_bytes += rows.nbytes
        self._held_bytes += rows.nbytes
        if part.held_bytes >= ROW_GROUP_BYTES or part.rows + sum(map(len, part.held)) >= self._options.file_rows:
            self._flush(part)
            self._roll(part)
        while self._held_bytes > BUFFERED_BYTES_MAX:
            self._flush(max(self._parts.values(), key=lambda each: each.held_bytes))
        if len(self._parts) > OPEN_MAX:
            self._end(next(iter(self._parts.values())))

    def _roll(self, part: _Part) -> None:
        if part.sink.tell() >= self._options.file_bytes or part.rows >= self._options.file_rows:
            self._end(part)

    def _flush(self, part: _Part) -> None:
        if not part.held:
            return
        table = pa.Table.from_batches(part.held)
        if part.writer is None:
            self._open(part, table.schema)
        part.writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._held_bytes -= part.held_bytes
        part.rows += table.num_rows
        part.held, part.held_bytes = [], 0

    def _open(self, part: _Part, schema: pa.Schema) -> None:
        where = folder(self._columns, part.values)
        suffix = "" if self._options.compression == "none" else f".{self._options.compression}"
        part.path = f"{where}{'/' if where else ''}{self._prefix}-{uuid.uuid4().hex[:12]}{suffix}.parquet"
        self._made.append(part.path)
        part.sink = self._store.create(part.path)
        part.writer = parquet.ParquetWriter(
            part.sink,
            schema,
            compression=self._options.compression,
            metadata_collector=part.metadata,
            **_encodings(schema),
        )

    def _end(self, part: _Part) -> None:
        self._flush(part)
        if part.writer is not None:
            self._close(part)
        del self._parts[part.values]  # last: what fails here is still to be discarded

    def _close(self, part: _Part) -> None:
        part.writer.close()
        size = part.sink.tell()
        part.sink.close()
        self._store.settle(part.path)
        self._done.append(PartFile(part.path, size, part.rows, part.values, statistics(part.metadata[0])))


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    counting = [
        each.name
        for each in schema
        if each.name in COUNTING and (pa.types.is_int64(each.type) or pa.types.is_timestamp(each.type))
    ]
    if not counting:
        return {}
    # pyarrow takes dictionaries by leaf; columns that are named here must not have one
    plain = [each.name for each in schema if each.name not in counting and not pa.types.is_nested(each.type)]
    return {"use_dictionary": plain, "column_encoding": dict.fromkeys(counting, "DELTA_BINARY_PACKED")}
