"""Spark's side of a table: what it calls, on the driver and in tasks."""

import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.pipeline.collector import spare_the_collector
from ottla.pipeline.sinks import task
from ottla.pipeline.sinks.changes import Log
from ottla.pipeline.sinks.errors import OptionRefused
from ottla.pipeline.sinks.options import TableOptions, table_options
from ottla.pipeline.sinks.store import Store
from ottla.pipeline.sinks.table_write import TableWrite, Written


class TableSink(DataSource):
    """A format that tables may have."""

    @staticmethod
    @abstractmethod
    def log_at(store: Store, options: TableOptions) -> Log: ...

    def schema(self) -> StructType:
        raise OptionRefused(
            f"{self.name()} is written to; read it with ottla.pipeline.sinks.{self.name()[6:]}.read(spark, path)"
        )

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        options = table_options(self.options)
        return BatchWriter(self._write(options, schema, overwrite), options.app_id, options.app_version)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        return StreamWriter(self._write(table_options(self.options), schema, overwrite))

    def _write(self, options: TableOptions, schema: StructType, overwrite: bool) -> TableWrite:
        arrow = to_arrow_schema(schema, timezone="UTC")
        return TableWrite(self.log_at, options, json.loads(schema.json()), arrow, overwrite)


class StreamWriter(DataSourceStreamArrowWriter):
    """Each batch of a query, known by the query's id and its number."""

    def __init__(self, table: TableWrite) -> None:
        self._table = table

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        spare_the_collector()
        return self._table.write(iterator, task.of_stream())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        query = next((each.query for each in messages if isinstance(each, Written)), None)
        if query is not None:  # without a task there was nothing to write
            self._table.commit(messages, query, batchId, is_stream=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._table.abort(messages)


class BatchWriter(DataSourceArrowWriter):
    """A write of its own, which the user may have named."""

    def __init__(self, table: TableWrite, app_id: str, version: int) -> None:
        self._table, self._app_id, self._version = table, app_id, version

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        spare_the_collector()
        return self._table.write(iterator, task.of_write(self._app_id, self._version))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._table.commit(messages, self._app_id, self._version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._table.abort(messages)
