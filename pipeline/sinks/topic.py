"""The writing side of `format("ottla")`: what Spark calls."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.pipeline.collector import spare_the_collector
from ottla.pipeline.sinks import task
from ottla.pipeline.sinks.errors import OptionRefused
from ottla.pipeline.sinks.lateness import planned_ago_s
from ottla.pipeline.sinks.topic_options import TopicOptions, check_columns, topic_options
from ottla.pipeline.sinks.topic_write import Sent, TopicWrite
from ottla.pipeline.wire.cache import shared


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    sent: Sent


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Each task ends its own transaction: there is nothing left to commit."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool = False) -> None:
        """On the driver, for each batch."""
        self._options = _checked(schema, options, False)
        ago_s = planned_ago_s(self._options.checkpoint)
        self._write = TopicWrite(self._options, ago_s / 3600, is_stream=True)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        spare_the_collector()
        return Written(self._write.write(iterator, task.of_stream(), shared(self._options.client)))


class TopicWriter(DataSourceArrowWriter):
    """A write of its own, which the user may have named."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool = False) -> None:
        self._options = _checked(schema, options, overwrite)
        self._write = TopicWrite(self._options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        spare_the_collector()
        attempt = task.of_write(self._options.app_id, self._options.app_version)
        return Written(self._write.write(iterator, attempt, shared(self._options.client)))


def _checked(schema: StructType, told: Mapping[str, str], overwrite: bool) -> TopicOptions:
    if overwrite:
        raise OptionRefused('A topic cannot be overwritten: use mode("append")')
    options = topic_options(told)
    check_columns(options, {field.name: field.dataType.typeName() for field in schema.fields})
    return options
