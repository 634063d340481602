"""``spark.read.format("ottla-segments")``: the topics that lie in log directories, without a broker."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ottla.pipeline.arrow.schema import schema
from ottla.pipeline.collector import spare_the_collector
from ottla.pipeline.pipes import until_closed
from ottla.pipeline.segments.options import SegmentsOptions, parse
from ottla.pipeline.segments.reading import Stretch, read_stretch
from ottla.pipeline.segments.tasks import plan


class SegmentsSource(DataSource):
    """Options: docs/pipeline.md."""

    @classmethod
    def name(cls) -> str:
        return "ottla-segments"

    def schema(self) -> StructType:
        return from_arrow_schema(schema(parse(self.options).columns))

    def reader(self, schema: StructType) -> "SegmentsReader":
        return SegmentsReader(parse(self.options))


class SegmentsPartition(InputPartition):
    """What one task reads."""

    def __init__(self, parts: Sequence[Stretch]) -> None:
        super().__init__(None)
        self.parts = tuple(parts)


class SegmentsReader(DataSourceReader):
    """Planned where the driver runs: the directories have to be there, and where the executors run."""

    def __init__(self, options: SegmentsOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [SegmentsPartition(part) for part in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        assert isinstance(partition, SegmentsPartition)
        options = self._options
        return until_closed(
            batch
            for part in partition.parts
            for batch in read_stretch(part, options.columns, fail_on_data_loss=options.fail_on_data_loss)
        )
