"""From Arrow to batches of version 2: what a producer sends, or a segment holds, without a Python object a record."""

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.arrow.batches import CRC_START, HEADER_BYTES, LENGTH_MIN, MAGIC, TRANSACTIONAL, Int64s
from ottla.pipeline.arrow.compression import NONE, codec_of, compress
from ottla.pipeline.arrow.crc import crc32c
from ottla.pipeline.arrow.fields import Column, column, header_column, varint_column
from ottla.pipeline.arrow.varints import varint_sizes, write_varints

BATCH_BYTES = 1_000_000
RECORDS_MAX = 1_000_000
CHUNK_BYTES = 4 << 20
"""Records are written in pieces of that many bytes, which stay in the processor's cache."""

SEQUENCES = 1 << 31

_BEFORE_CRC = Struct(">qiibI")
_BEHIND_CRC = Struct(">hiqqqhii")
assert _BEFORE_CRC.size == CRC_START
assert _BEFORE_CRC.size + _BEHIND_CRC.size == HEADER_BYTES


class EncodedBatch(NamedTuple):
    """One batch; ``next_sequence`` is the base sequence of the producer's next one (-1 without sequences)."""

    data: bytes
    rows: int
    base_offset: int
    base_sequence: int
    next_sequence: int


class Rows(NamedTuple):
    """What is to be written. ``timestamps`` in milliseconds; ``headers`` encoded, with their count before them."""

    keys: Column
    values: Column
    headers: Column
    timestamps: Int64s


class _Stamp(NamedTuple):
    """What all batches say alike."""

    codec: int
    level: int | None
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int


def encode(
    keys: pa.Array | pa.ChunkedArray | None,
    values: pa.Array | pa.ChunkedArray | None,
    *,
    timestamps: pa.Array | pa.ChunkedArray | int,
    headers: pa.Array | pa.ChunkedArray | None = None,
    compression: str = "none",
    level: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    records_max: int = RECORDS_MAX,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> Iterator[EncodedBatch]:
    """The rows in batches of at most ``batch_bytes`` before compression; a record that is larger is a batch of its own.

    Without a ``base_offset`` each batch says 0, as producers do. Raises ValueError, before the first batch, for columns that
    cannot be records.
    """
    number = _rows_of(keys, values, headers, timestamps)
    rows = Rows(
        column(keys, number), column(values, number), header_column(headers, number), _millis(timestamps, number)
    )
    codec = codec_of(compression)
    stamp = _Stamp(codec, level, leader_epoch, codec | TRANSACTIONAL * transactional, producer_id, producer_epoch)
    if number == 0:
        return iter(())
    bounds, sizes = _plan(rows, batch_bytes - HEADER_BYTES, records_max)
    return _encode(rows, stamp, bounds, sizes, base_offset, base_sequence)


def _rows_of(*columns: object) -> int:
    lengths = {len(given) for given in columns if given is not None and not isinstance(given, int)}  # type: ignore[arg-type]
    if len(lengths) != 1:
        raise ValueError(f"columns of {sorted(lengths)} rows" if lengths else "neither keys, values nor headers")
    return lengths.pop()


def _millis(timestamps: pa.Array | pa.ChunkedArray | int, number: int) -> Int64s:
    if isinstance(timestamps, int):
        return np.full(number, timestamps, np.int64)
    if timestamps.null_count:
        raise ValueError("timestamps: null")
    if pa.types.is_timestamp(timestamps.type):
        timestamps = timestamps.cast(pa.timestamp("ms", tz=timestamps.type.tz), safe=False)
    millis: Int64s = timestamps.cast(pa.int64()).to_numpy()
    return millis


def _plan(rows: Rows, limit_bytes: int, records_max: int) -> tuple[list[int], Int64s]:
    """Where batches begin, and the end of the last; and what each record may take."""
    time_span = rows.timestamps.max() - rows.timestamps.min()
    in_batch = min(records_max, len(rows.timestamps))
    deltas = int(varint_sizes(np.array([time_span, in_batch], np.int64)).sum())
    sizes = 1 + deltas + rows.headers.lengths
    for field in (rows.keys, rows.values):
        sizes += varint_sizes(field.lengths) + np.maximum(field.lengths, 0)
    sizes += varint_sizes(sizes)
    behind = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < len(sizes):
        first = bounds[-1]
        before = int(behind[first - 1]) if first else 0
        last = int(np.searchsorted(behind, before + limit_bytes, side="right"))
        bounds.append(max(first + 1, min(last, first + records_max)))
    return bounds, behind


def _encode(
    rows: Rows, stamp: _Stamp, bounds: list[int], behind: Int64s, base_offset: int | None, sequence: int
) -> Iterator[EncodedBatch]:
    for chunk in _chunks(bounds, behind):
        block, places = _records(rows, np.array(chunk, np.int64))
        times = rows.timestamps[chunk[0] : chunk[-1]]
        latest = np.maximum.reduceat(times, np.array(chunk[:-1]) - chunk[0]).tolist()
        for number, (first, last) in enumerate(pairwise(chunk)):
            count = last - first
            offset = 0 if base_offset is None else base_offset + first
            data = _seal(
                block[places[number] : places[number + 1]],
                stamp,
                (offset, count, int(rows.timestamps[first]), latest[number], sequence),
            )
            following = -1 if sequence < 0 else (sequence + count) % SEQUENCES
            yield EncodedBatch(data, count, offset, sequence, following)
            sequence = following


def _chunks(bounds: list[int], behind: Int64s) -> Iterator[list[int]]:
    """The bounds of as many batches as make about one piece."""
    ends = behind[np.array(bounds[1:]) - 1]
    number = 0
    while number < len(ends):
        before = int(ends[number - 1]) if number else 0
        last = max(number + 1, int(np.searchsorted(ends, before + CHUNK_BYTES, side="right")))
        yield bounds[number : last + 1]
        number = last


def _records(rows: Rows, bounds: Int64s) -> tuple[memoryview, list[int]]:
    """The records of the batches between these bounds, one behind the other; and where each batch's begin and the last ends."""
    start, end = int(bounds[0]), int(bounds[-1])
    keys, values, headers = (field.part(start, end) for field in (rows.keys, rows.values, rows.headers))
    counts = np.diff(bounds)
    first = np.repeat(bounds[:-1], counts)
    times = rows.timestamps[start:end] - rows.timestamps[first]
    deltas = np.arange(start, end) - first
    sizes = [varint_sizes(field) for field in (times, deltas, keys.lengths, values.lengths)]
    bodies = 1 + sizes[0] + sizes[1] + sizes[2] + sizes[3] + headers.lengths
    bodies += np.maximum(keys.lengths, 0) + np.maximum(values.lengths, 0)
    length_sizes = varint_sizes(bodies)

    places = np.zeros(end - start + 1, np.int64)
    np.cumsum(length_sizes + 1 + sizes[0] + sizes[1] + sizes[2], out=places[1:])
    before = np.zeros(int(places[-1]), np.uint8)
    at = write_varints(before, places[:-1], bodies) + 1  # attributes are 0
    at = write_varints(before, write_varints(before, at, times), deltas)
    write_varints(before, at, keys.lengths)
    prefixes = pa.Array.from_buffers(
        pa.binary(), end - start, [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(before)]
    )
    joined = pc.binary_join_element_wise(
        prefixes, keys.data, varint_column(values.lengths), values.data, headers.data, b""
    )
    ends = np.zeros(end - start + 1, np.int64)
    np.cumsum(length_sizes + bodies, out=ends[1:])
    return memoryview(joined.buffers()[2]).cast("B"), ends[bounds - start].tolist()


def _seal(block: memoryview, stamp: _Stamp, own: tuple[int, int, int, int, int]) -> bytes:
    """A batch of these records, CRC and all."""
    offset, count, base_timestamp, max_timestamp, sequence = own
    packed = block if stamp.codec == NONE else compress(stamp.codec, block, stamp.level)
    behind = _BEHIND_CRC.pack(
        stamp.attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        stamp.producer_id,
        stamp.producer_epoch,
        sequence,
        count,
    )
    crc = crc32c(packed, crc32c(behind, 0))
    before = _BEFORE_CRC.pack(offset, LENGTH_MIN + len(packed), stamp.leader_epoch, MAGIC, crc)
    return b"".join((before, behind, packed))
