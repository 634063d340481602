"""Values that are JSON objects, decoded by Arrow's reader: whole chunks at once, and again in parts where one fails."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.formats.types import schema_of

_STEPS = (4096, 256, 16, 1)
"""Into parts of how many values a chunk is cut that does not parse as a whole."""

_OPEN, _CLOSE = ord("{"), ord("}")
_NO_FAULT = pa.scalar(None, pa.string())


class JsonValues:
    """Fields that the schema does not name are passed over; those that are missing are null."""

    def __init__(self, schema: bytes) -> None:
        self.schema = schema_of(schema.decode())
        self._read = _readable(self.schema)
        self._parse = arrow_json.ParseOptions(explicit_schema=self._read, unexpected_field_behavior="ignore")

    def decode(self, values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        found = values.drop_null() if values.null_count else values
        table, faults = self._rows(found)
        columns = [_fitting(table.column(field.name).combine_chunks(), field.type) for field in self.schema]
        if values.null_count:
            places = _places(values)
            columns = [column.take(places) for column in columns]
            faults = faults.take(places)
        return columns, faults

    def _rows(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """A row for each value, all null where it is at fault; and the faults."""
        tables: list[pa.Table] = []
        faults: list[str | None] = []
        self._parts(values, 0, tables, faults)
        table = pa.concat_tables(tables) if tables else self._read.empty_table()
        return table, pa.array(faults, pa.string()) if any(faults) else pa.nulls(len(values), pa.string())

    def _parts(self, values: pa.Array, step: int, tables: list[pa.Table], faults: list[str | None]) -> None:
        """Parses the values as one, or in ever smaller parts: what a row becomes does not depend on its neighbours."""
        if not len(values):
            return
        parsed, fault = self._parsed(values)
        if parsed is not None:
            tables.append(parsed)
            faults.extend([None] * len(values))
        elif len(values) == 1:
            tables.append(pa.table({f.name: pa.nulls(1, f.type) for f in self._read}, schema=self._read))
            faults.append(fault)
        else:
            while _STEPS[step] >= len(values):
                step += 1
            for first in range(0, len(values), _STEPS[step]):
                self._parts(values.slice(first, _STEPS[step]), step, tables, faults)

    def _parsed(self, values: pa.Array) -> tuple[pa.Table | None, str]:
        """As many rows as values, or None and why not.

        Each value has to begin and end as an object does: then none can reach into the next, and where the number of
        rows is right no row is another's.
        """
        if not _are_texts(values):
            return None, "the value is no UTF-8"
        joined, offsets = _joined(values)
        if not _are_objects(joined, offsets):
            return (self._trimmed(values[0].as_py()) if len(values) == 1 else None), "the value is no JSON object"
        return self._table(joined, len(values))

    def _trimmed(self, value: bytes) -> pa.Table | None:
        """One object with white space around it."""
        trimmed = value.strip()
        if trimmed == value or trimmed[:1] != b"{" or trimmed[-1:] != b"}":
            return None
        return self._table(trimmed, 1)[0]

    def _table(self, joined: bytes, count: int) -> tuple[pa.Table | None, str]:
        options = arrow_json.ReadOptions(use_threads=False, block_size=max(1 << 10, len(joined) + 1))
        try:
            table = arrow_json.read_json(io.BytesIO(joined), read_options=options, parse_options=self._parse)
        except pa.ArrowInvalid as error:
            return None, str(error).splitlines()[0].replace("JSON parse error: ", "").replace(" in row 0", "")
        if table.num_rows != count:
            return None, "the value is not one JSON object"
        return table.select(self._read.names), ""


def _joined(values: pa.Array) -> tuple[bytes, np.ndarray]:
    """All values with a line's end behind each, and where each ends."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths + 1)
    text = pc.binary_join(pa.scalar(values.to_pylist(), pa.list_(pa.binary())), b"\n") if len(values) < 64 else None
    joined = text.as_py() + b"\n" if text is not None else _join_many(values)
    return joined, ends


def _join_many(values: pa.Array) -> bytes:
    one = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined: bytes = pc.binary_join(one, b"\n")[0].as_py()
    return joined + b"\n"


def _are_texts(values: pa.Array) -> bool:
    """Arrow's reader does not look."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _are_objects(joined: bytes, ends: np.ndarray) -> bool:
    octets = np.frombuffer(joined, np.uint8)
    starts = np.concatenate(([0], ends[:-1]))
    if (ends - starts <= 2).any():
        return False
    return bool((octets[starts] == _OPEN).all() and (octets[ends - 2] == _CLOSE).all())


def _places(values: pa.Array) -> pa.Array:
    """For each value its place among those that are not null."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    places = np.cumsum(valid) - 1
    return pa.array(places, pa.int64(), mask=~valid)


def _readable(schema: pa.Schema) -> pa.Schema:
    """What Arrow's reader reads in the place of types that it has none for: of days it takes numbers, and texts of times only."""
    return pa.schema([(field.name, _readable_type(field.name, field.type)) for field in schema])


def _readable_type(name: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _readable_type(name, kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _readable_type(field.name, field.type)) for field in kind])
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        raise OptionError(
            f"option value.schema: {name} is {kind}, which is not read from JSON: take string, or a struct"
        )
    return pa.timestamp("s") if pa.types.is_date(kind) else kind


def _fitting(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type.equals(kind) else array.cast(kind)
