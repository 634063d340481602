"""A task of Spark's: reads its ranges, and gives Arrow. It travels to an executor by pickling."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ottla.pipeline.arrow.aborted import AbortedTransactions
from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.collector import spare_the_collector
from ottla.pipeline.source.asking import tell
from ottla.pipeline.source.columns import Layout
from ottla.pipeline.source.formats import decoder_of
from ottla.pipeline.source.planning import Task
from ottla.pipeline.wire.cache import shared
from ottla.pipeline.wire.errors import DataLossError, TopicChangedError
from ottla.pipeline.wire.fetch import Fetcher
from ottla.pipeline.wire.reading import Fetched
from ottla.pipeline.wire.settings import ClientSettings


@dataclass(frozen=True)
class TaskReader:
    """What every task of a query needs to know."""

    settings: ClientSettings
    layout: Layout
    schema: pa.Schema
    fails_on_loss: bool = True

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The records of the task's ranges, in their order. Raises DataLossError and its kin, CorruptRecordsError."""
        spare_the_collector()
        cluster = shared(self.settings)
        fetcher = Fetcher(cluster, task, skips_loss=not self.fails_on_loss)
        rows = _Rows(self, task)
        try:
            for fetched in fetcher:
                yield from rows.of(fetched)
        except (DataLossError, TopicChangedError) as error:
            error.add_note("option failOnDataLoss=false goes on without")
            raise
        tell([f"{loss}: skipped" for loss in fetcher.lost])


class _Rows:
    """What is fetched, as batches of the source's schema."""

    def __init__(self, reader: TaskReader, task: Sequence[object]) -> None:
        self._reader = reader
        self._task: Task = tuple(task)  # type: ignore[arg-type]
        self._decoders: dict[int, Decoder] = {}
        layout = reader.layout
        self._values = decoder_of(layout.format) if layout.format else None

    def of(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        decoder = self._decoder(fetched.range)
        decoder.finish(fetched.first_offset)
        aborted = AbortedTransactions(fetched.aborted) if self._reader.settings.reads_committed else None
        for batch in decoder.feed(fetched.records, aborted):
            if batch.num_rows:
                yield self._reader.layout.laid_out(batch, self._values, self._reader.schema)
        decoder.finish(fetched.next_offset)
        if decoder.done:
            del self._decoders[fetched.range]

    def _decoder(self, index: int) -> Decoder:
        found = self._decoders.get(index)
        if found is None:
            each = self._task[index]
            found = self._decoders[index] = Decoder(
                each.topic,
                each.partition,
                self._reader.layout.fetched,
                start=each.start,
                end=each.end,
                check_crcs=self._reader.settings.check_crcs,
            )
        return found
