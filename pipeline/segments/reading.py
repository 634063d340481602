"""The rows of a stretch of a segment."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ottla.pipeline.arrow.aborted import AbortedTransactions
from ottla.pipeline.arrow.batches import HEADER, HEADER_BYTES, LENGTH_MIN, LOG_OVERHEAD, MAGIC
from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.arrow.errors import CorruptRecordsError
from ottla.pipeline.segments.errors import CorruptSegmentError
from ottla.pipeline.segments.pieces import PIECE_BYTES, Pieces

_log = logging.getLogger(__name__)


class Stretch(NamedTuple):
    """Batches of one segment: bytes [start, end) of its file, records of [start_offset, end_offset).

    ``aborted`` are the entries of the index that concern it; None reads everything. ``last`` is the one with which the partition
    ends, so that it may be torn.
    """

    path: str
    topic: str
    partition: int
    start: int
    end: int
    start_offset: int
    end_offset: int
    aborted: tuple[tuple[int, int, int], ...] | None
    last: bool
    sure: bool
    """Whether the records up to ``end_offset`` are known to have been there."""


def read_stretch(
    stretch: Stretch, columns: Sequence[str], *, fail_on_data_loss: bool = True, piece_bytes: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """Raises CorruptSegmentError, unless it shall not fail: then what cannot be read is passed over, and logged."""
    reading = _Reading(stretch, columns, piece_bytes)
    while not reading.finished:
        try:
            yield from reading.rows()
        except (CorruptSegmentError, OSError) as fault:
            error = reading.named(fault)
            if fail_on_data_loss:
                raise error from None
            _log.warning("passed over: %s", error)
            reading.pass_over(error.position)


class _Reading:
    def __init__(self, stretch: Stretch, columns: Sequence[str], piece_bytes: int) -> None:
        self.finished = False
        self._stretch = stretch
        self._pieces = Pieces(stretch.path, stretch.start, stretch.end, piece_bytes)
        self._aborted = None if stretch.aborted is None else AbortedTransactions.of_index(stretch.aborted)
        self._decoder = Decoder(
            stretch.topic, stretch.partition, columns, start=stretch.start_offset, end=stretch.end_offset
        )

    def rows(self) -> Iterator[pa.RecordBatch]:
        decoder, pieces = self._decoder, self._pieces
        for piece in pieces:
            if decoder.done:
                break
            try:
                yield from decoder.feed(piece.data, self._aborted)
            except CorruptRecordsError as error:
                at = piece.position + error.position
                if self._torn(at, piece.data[error.position :]):
                    break
                raise self._corrupt(at, error.offset, error.message) from None
            if piece.last and not decoder.consumed:
                break
            pieces.next_at(piece.position + decoder.consumed, max(decoder.needed_bytes, HEADER_BYTES))
        self._finish()

    def _finish(self) -> None:
        self.finished = True
        stretch, decoder, position = self._stretch, self._decoder, self._pieces.position
        if decoder.done:
            return
        if position < stretch.end and not stretch.last:
            raise self._corrupt(position, decoder.next_offset, "the file ends within a batch")
        if stretch.last and stretch.sure:
            message = f"the log ends here, and had records up to offset {stretch.end_offset} (its high watermark)"
            raise self._corrupt(position, decoder.next_offset, message)

    def _torn(self, at: int, rest: memoryview) -> bool:
        """Whether a file ends here as a crash may leave it: with zeros, at the end of the partition."""
        if not self._stretch.last or np.frombuffer(rest, np.uint8).any():
            return False
        behind = Pieces(self._stretch.path, at + len(rest), self._stretch.end)
        for piece in behind:
            if np.frombuffer(piece.data, np.uint8).any():
                return False
            behind.next_at(piece.position + len(piece.data))
        return True

    def _corrupt(self, position: int, offset: int, message: str) -> CorruptSegmentError:
        return CorruptSegmentError(self._stretch.path, position, offset, message)

    def named(self, fault: CorruptSegmentError | OSError) -> CorruptSegmentError:
        """With file and offset: a file may be gone, or its disk unreadable."""
        if isinstance(fault, CorruptSegmentError):
            return fault
        return self._corrupt(self._pieces.position, self._decoder.next_offset, fault.strerror or str(fault))

    def pass_over(self, position: int) -> None:
        """Goes on behind the batch at ``position`` if another one follows it; else this was all."""
        try:
            following = self._following(position)
        except OSError:
            following = None
        if following is None:
            self.finished = True
        else:
            self._pieces.next_at(following)

    def _following(self, position: int) -> int | None:
        head = self._header(position)
        if head is None:
            return None
        at = position + int(head["batch_length"]) + LOG_OVERHEAD
        following = self._header(at)
        if following is None or following["magic"] != MAGIC or following["batch_length"] < LENGTH_MIN:
            return None
        return at if self._decoder.next_offset <= int(following["base_offset"]) else None

    def _header(self, position: int) -> np.void | None:
        for piece in Pieces(self._stretch.path, position, min(position + HEADER_BYTES, self._stretch.end)):
            if len(piece.data) == HEADER_BYTES:
                found: np.void = np.frombuffer(piece.data, HEADER)[0]
                return found
        return None
