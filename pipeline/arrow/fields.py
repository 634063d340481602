"""Columns as the fields of records: bytes that may be null, and their lengths."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.arrow.batches import Int64s
from ottla.pipeline.arrow.varints import varint_sizes, write_varints


class Column(NamedTuple):
    """``lengths`` are -1 where there is null; ``data`` is empty there, or one value for all rows."""

    data: pa.Array | bytes
    lengths: Int64s

    def part(self, start: int, end: int) -> "Column":
        """The rows of [start, end), in one array of at most 2 GB."""
        if isinstance(self.data, bytes):
            return Column(self.data, self.lengths[start:end])
        piece = self.data.slice(start, end - start)
        if isinstance(piece, pa.ChunkedArray):
            piece = piece.combine_chunks()
        return Column(piece.cast(pa.binary()), self.lengths[start:end])


def column(given: pa.Array | pa.ChunkedArray | None, rows: int) -> Column:
    """A column of bytes or text; all nulls when there is none. Raises ValueError for another type."""
    if given is None:
        return Column(b"", np.full(rows, -1, np.int64))
    kind = given.type
    if pa.types.is_null(kind):
        return column(None, rows)
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        given = given.cast(pa.binary())
    elif pa.types.is_large_string(kind):
        given = given.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise ValueError(f"a column of {kind} where bytes or text were expected")
    if not given.null_count:
        return Column(given, pc.binary_length(given).to_numpy().astype(np.int64))
    lengths = pc.fill_null(pc.binary_length(given), -1).to_numpy().astype(np.int64)
    return Column(pc.fill_null(given, b""), lengths)


def header_column(given: pa.Array | pa.ChunkedArray | None, rows: int) -> Column:
    """The headers of each row as they stand in a record: how many, and then the key and the value of each.

    Raises ValueError for another type than a list of pairs, and for a header without a key.
    """
    if given is None or pa.types.is_null(given.type):
        return Column(b"\0", np.ones(rows, np.int64))
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    kind = given.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise ValueError(f"headers of {kind} where a list of (key, value) was expected")
    counts = pc.fill_null(pc.list_value_length(given), 0).to_numpy().astype(np.int64)
    if not counts.any():
        return header_column(None, rows)
    pairs = given.flatten()
    named = [kind.value_type.get_field_index(name) for name in ("key", "value")]
    fields = (pc.struct_field(pairs, [number]) for number in (named if min(named) >= 0 else (0, 1)))
    keys, values = (column(field, len(pairs)).part(0, len(pairs)) for field in fields)
    if len(pairs) and int(keys.lengths.min()) < 0:
        raise ValueError("headers: null where a key was expected")
    joined = pc.binary_join_element_wise(
        varint_column(keys.lengths), keys.data, varint_column(values.lengths), values.data, b""
    )
    places = np.zeros(rows + 1, np.int64)
    np.cumsum(counts, out=places[1:])
    ends = np.frombuffer(joined.buffers()[1], np.int32)[: len(pairs) + 1][places]
    whole = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), joined.buffers()[2]])
    data = pc.binary_join_element_wise(varint_column(counts), whole, b"")
    return Column(data, pc.binary_length(data).to_numpy().astype(np.int64))


def varint_column(values: Int64s) -> pa.Array:
    """Each of the values as the bytes of its varint."""
    places = np.zeros(len(values) + 1, np.int64)
    np.cumsum(varint_sizes(values), out=places[1:])
    octets = np.empty(int(places[-1]), np.uint8)
    write_varints(octets, places[:-1], values)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(octets)]
    )
