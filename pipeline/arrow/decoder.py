"""From the bytes of a log to Arrow: what Fetch answers, or a piece of a segment, becomes RecordBatches, without an object a record."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ottla.pipeline.arrow.aborted import AbortedTransactions
from ottla.pipeline.arrow.batches import CONTROL, HEADER_BYTES, Bytes, Int64s, corrupt, impossible
from ottla.pipeline.arrow.columns import ColumnBuilder
from ottla.pipeline.arrow.compression import Scratch
from ottla.pipeline.arrow.errors import BadBlockError, CorruptRecordsError
from ottla.pipeline.arrow.input import Input
from ottla.pipeline.arrow.records import Blocks, find_records
from ottla.pipeline.arrow.schema import COLUMNS_WITHOUT_HEADERS

TARGET_BYTES = 8 << 20
ROWS_MAX = 200_000
BATCH_BYTES_MAX = 128 << 20
OFFSET_MAX = 2**63 - 1


class Decoder:
    """One reading of one partition, from ``start`` on and up to ``end``. Feed it the log's bytes in order.

    ``next_offset`` and ``consumed`` are right once the batches that `feed` gives have all been taken.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str] = COLUMNS_WITHOUT_HEADERS,
        *,
        start: int = 0,
        end: int | None = None,
        check_crcs: bool = True,
        target_bytes: int = TARGET_BYTES,
        rows_max: int = ROWS_MAX,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = start
        self.consumed = 0
        self.needed_bytes = 0
        self._end = OFFSET_MAX if end is None else end
        self._check_crcs = check_crcs
        self._target_bytes = target_bytes
        self._rows_max = rows_max
        self._batch_bytes_max = batch_bytes_max
        self._columns = ColumnBuilder(topic, partition, columns)
        self._scratch = Scratch()

    @property
    def done(self) -> bool:
        return self.next_offset >= self._end

    def finish(self, offset: int) -> None:
        """The log has nothing more below ``offset``."""
        self.next_offset = max(self.next_offset, min(offset, self._end))

    def feed(self, data: Bytes | pa.Buffer, aborted: AbortedTransactions | None = None) -> Iterator[pa.RecordBatch]:
        """The records of the whole batches of ``data``; of those that come before a corrupt one, when there is one.

        Raises CorruptRecordsError.
        """
        self.consumed = self.needed_bytes = 0
        try:
            given = Input(memoryview(data).cast("B"), check_crcs=self._check_crcs)
            yield from self._whole_batches(given, aborted)
            self.consumed, self.needed_bytes = given.end, given.cut_off_bytes
            if not self.done:
                self._look_behind(given)
        except CorruptRecordsError as error:
            named = CorruptRecordsError(error.message, self.topic, self.partition, error.offset, error.position)
            raise named from None

    def _look_behind(self, given: Input) -> None:
        """Raises CorruptRecordsError where what follows the whole batches can never become one."""
        fault = impossible(given.view, given.end)
        if not fault and self.needed_bytes > self._batch_bytes_max + HEADER_BYTES:
            fault = f"batch of {self.needed_bytes} bytes, {self._batch_bytes_max} are allowed"
        if fault:
            raise CorruptRecordsError(fault, offset=self.next_offset, position=given.end)

    def _whole_batches(self, given: Input, aborted: AbortedTransactions | None) -> Iterator[pa.RecordBatch]:
        given = given.below(self._end)
        headers = given.headers
        wanted = (headers["attributes"] & CONTROL == 0) & (headers["records_count"] != 0)
        wanted &= given.lasts >= self.next_offset
        if aborted is not None:
            wanted &= ~aborted.of_batches(headers, given.is_abort)
        for first, last in given.groups(self._target_bytes):
            sound, fault = given.sound_until(first, last)
            yield from self._rows(given, np.flatnonzero(wanted[first:sound]) + first)
            if sound > first:
                self.finish(int(given.lasts[sound - 1]) + 1)
            if fault:
                raise corrupt(fault, headers, given.positions, sound)
        if given.more_beyond:
            self.finish(self._end)

    def _rows(self, given: Input, chosen: Int64s) -> Iterator[pa.RecordBatch]:
        """The records of the batches of these numbers."""
        if not chosen.size:
            return
        if given.codecs[chosen].any():
            yield from self._compressed_rows(given, chosen)
            return
        starts = given.positions[chosen]
        ends = starts + given.sizes[chosen]
        counts = given.headers["records_count"][chosen].astype(np.int64)
        yield from self._rows_of(given, chosen, Blocks(given.octets, starts + HEADER_BYTES, ends, counts))

    def _compressed_rows(self, given: Input, chosen: Int64s) -> Iterator[pa.RecordBatch]:
        """Opens batches until they are enough for one RecordBatch, and then the next ones."""
        scratch, starts, first = self._scratch, [0], 0
        scratch.clear()
        for number, index in enumerate(chosen.tolist(), 1):
            try:
                scratch.add(int(given.codecs[index]), given.block(index), self._batch_bytes_max)
            except BadBlockError as error:
                yield from self._opened_rows(given, chosen[first : number - 1], starts)
                raise corrupt(str(error), given.headers, given.positions, index) from None
            starts.append(scratch.used)
            if scratch.used >= self._target_bytes:
                yield from self._opened_rows(given, chosen[first:number], starts)
                scratch.clear()
                starts, first = [0], number
        yield from self._opened_rows(given, chosen[first:], starts)

    def _opened_rows(self, given: Input, chosen: Int64s, starts: list[int]) -> Iterator[pa.RecordBatch]:
        if chosen.size:
            places = np.array(starts, np.int64)
            counts = given.headers["records_count"][chosen].astype(np.int64)
            yield from self._rows_of(given, chosen, Blocks(self._scratch.octets, places[:-1], places[1:], counts))

    def _rows_of(self, given: Input, chosen: Int64s, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Cuts the records of these blocks into RecordBatches. Raises CorruptRecordsError behind those that are sound."""
        records = find_records(blocks)
        owners = np.repeat(chosen[: records.batches], blocks.counts[: records.batches])
        for at in range(0, len(owners), self._rows_max):
            part = slice(at, at + self._rows_max)
            built = self._columns.build(
                blocks.octets,
                records.starts[part],
                records.ends[part],
                given,
                owners[part],
                self.next_offset,
                self._end,
            )
            if built.rows is not None:
                yield built.rows
            if built.fault:
                raise corrupt(built.fault, given.headers, given.positions, built.batch)
        if records.fault:
            raise corrupt(records.fault, given.headers, given.positions, int(chosen[records.batches]))
