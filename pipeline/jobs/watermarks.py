"""The watermark by which a batch's records are late, as a table of one row: Spark counts dropped groups, and we want records.

Spark takes the watermark of the batch before, which the query's checkpoint tells; the task knows which batch is at work. Read anew for each batch.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.pipeline.jobs.checkpoint import Checkpoint

NAME = "ottla-watermark"
BATCH_PROPERTY = "streaming.sql.batchId"


class WatermarkReader(DataSourceReader):
    """One row: no record before it is late."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[datetime]]:
        context = TaskContext.get()
        batch = context.getLocalProperty(BATCH_PROPERTY) if context is not None else None
        yield (datetime.fromtimestamp(late_before_ms(self._checkpoint, int(batch or 0)) / 1000, UTC),)


def late_before_ms(checkpoint: str, batch: int) -> int:
    """A window that ended by then is closed. The first batch has none."""
    return Checkpoint(checkpoint).watermark_ms(batch - 1) if batch > 0 else 0


class Watermark(DataSource):
    """``format("ottla-watermark")`` with the option ``checkpoint``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "watermark timestamp"

    def reader(self, schema: StructType) -> DataSourceReader:
        return WatermarkReader(self.options["checkpoint"])
