"""``format("ottla")`` for Spark 4.0 to 4.3: what its planner and its tasks call."""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ottla.pipeline.pipes import until_closed
from ottla.pipeline.source.batch import batch_plan
from ottla.pipeline.source.columns import layout_of
from ottla.pipeline.source.filters import is_about_places, wanted_of
from ottla.pipeline.source.formats import decoder_of
from ottla.pipeline.source.limits_of_spark import default_limit, is_unlimited
from ottla.pipeline.source.options import SourceOptions, parse_options
from ottla.pipeline.source.planning import Task
from ottla.pipeline.source.stream import Stream
from ottla.pipeline.source.task import TaskReader
from ottla.pipeline.wire.cluster import Cluster

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark before 4.2 asks for no such thing
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.topic}-{each.partition} [{each.start}, {each.end})" for each in self.task[:5])
        return f"Ranges({shown}{', ...' if len(self.task) > 5 else ''})"


class OttlaSource(DataSource):
    """Topics as tables and tables as topics."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        options = self._parsed(streaming=True)  # what a batch alone refuses is refused when it is planned
        decoder = decoder_of(options.format) if options.format else None
        return from_arrow_schema(layout_of(options, decoder)[1], prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._parsed(streaming=False)
        return (_NarrowedReader if options.pushdown else _Reader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self._parsed(streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        made: DataSourceWriter = _sink("TopicWriter")(schema, dict(self.options), overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        made: DataSourceStreamWriter = _sink("TopicStreamWriter")(schema, dict(self.options), overwrite)
        return made

    def _parsed(self, *, streaming: bool) -> SourceOptions:
        return parse_options(dict(self.options), streaming=streaming)


def _sink(name: str) -> Any:
    """Loaded where something is written: a reader's processes need none of it."""
    return getattr(importlib.import_module("ottla.pipeline.sinks.topic"), name)


def _task_reader(options: SourceOptions, schema: StructType) -> TaskReader:
    decoder = decoder_of(options.format) if options.format else None
    layout, _ = layout_of(options, decoder)
    return TaskReader(options.client, layout, to_arrow_schema(schema, timezone="UTC"), options.fails_on_loss)


class _Reader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._tasks = _task_reader(options, schema)
        self._filters: list[Any] = []

    def partitions(self) -> Sequence[InputPartition]:
        wanted = wanted_of(self._filters) if self._filters else None
        with Cluster(self._options.client) as cluster:
            return [Ranges(task) for task in batch_plan(cluster, self._options, wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return until_closed(self._tasks.read(_task_of(partition)))


class _NarrowedReader(_Reader):
    """With filters: where a reader has this method Spark fails every query, unless its conf allows pushing down."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        """Spark filters all the same: what is narrowed is what is read."""
        self._filters = [each for each in filters if is_about_places(each)]
        yield from filters


def _task_of(partition: InputPartition) -> Task:
    """Spark makes a partition of nothing where there is none."""
    return partition.task if isinstance(partition, Ranges) else ()


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's calls come to one that lives as long as the query; ``read`` to copies in executors' processes."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._tasks = _task_reader(options, schema)
        self._stream: Stream | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._driver.initial()

    def getDefaultReadLimit(self) -> Any:
        return default_limit(self._options)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Spark before 4.2 gives neither."""
        return self._driver.latest(start, unlimited=is_unlimited(self._options, limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver.newest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Ranges(task) for task in self._driver.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return until_closed(self._tasks.read(_task_of(partition)))

    def stop(self) -> None:
        """The query is over, and the JVM has closed the pipe by which it asked. Spark's process would now tell it so, and print a
        traceback or two of the broken pipe: it ends here."""
        if isinstance(sys.exception(), EOFError | BrokenPipeError | ConnectionResetError):
            os._exit(0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    @property
    def _driver(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(Cluster(self._options.client), self._options)
        return self._stream
