"""The columns of a RecordBatch, from where the fields of its records lie."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.arrow.batches import LOG_APPEND_TIME, Int64s, Octets
from ottla.pipeline.arrow.input import Input
from ottla.pipeline.arrow.records import Fields, HeaderFields, find_fields, find_headers
from ottla.pipeline.arrow.schema import HEADERS_TYPE, schema

_MILLIS_MAX = (2**63 - 1) // 1000


class Built(NamedTuple):
    """The rows, if there are any; and what is wrong with which batch behind them, if something is."""

    rows: pa.RecordBatch | None
    fault: str = ""
    batch: int = -1


class ColumnBuilder:
    """Makes the columns that were asked for, and no others."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._schema = schema(columns)
        self._names = tuple(columns)
        self._constants: dict[str, pa.Array] = {}

    def build(
        self, octets: Octets, starts: Int64s, ends: Int64s, given: Input, owners: Int64s, start: int, end: int
    ) -> Built:
        """The rows of [start, end) among these records; ``owners`` are the numbers of their batches."""
        fields, wrong = find_fields(octets, starts, ends)
        deltas = fields.offset_deltas
        wrong |= (deltas < 0) | (deltas > given.headers["last_offset_delta"].astype(np.int64)[owners])
        headers = None
        if "headers" in self._names and not wrong.any():
            headers, wrong = find_headers(octets, fields, ends)
        if wrong.any():
            bad = int(wrong.argmax())
            sound = int(np.searchsorted(owners, owners[bad]))
            built = Built(None)
            if sound:
                built = self.build(octets, starts[:sound], ends[:sound], given, owners[:sound], start, end)
            record = bad - sound
            fault = built.fault or f"record {record} of it has fields that do not fit into it"
            return Built(built.rows, fault, int(owners[bad]))
        return Built(self._rows(octets, fields, headers, given, owners, start, end))

    def _rows(
        self,
        octets: Octets,
        fields: Fields,
        headers: HeaderFields | None,
        given: Input,
        owners: Int64s,
        start: int,
        end: int,
    ) -> pa.RecordBatch | None:
        offsets = given.bases[owners] + fields.offset_deltas
        arrays = {}
        for name in self._names:
            if name in ("key", "value"):
                at, lengths = getattr(fields, name + "s"), getattr(fields, name + "_lengths")
                arrays[name] = spans(octets, at, lengths)
            elif name == "offset":
                arrays[name] = pa.array(offsets)
            elif name == "timestamp":
                arrays[name] = _timestamps(fields, given, owners)
            elif name == "timestampType":
                arrays[name] = pa.array(_appended(given)[owners].astype(np.int32))
            elif name == "headers":
                assert headers is not None
                arrays[name] = _headers(octets, headers)
            else:
                arrays[name] = self._constant(name, len(owners))
        rows = pa.RecordBatch.from_arrays([arrays[name] for name in self._names], schema=self._schema)
        outside = (offsets < start) | (offsets >= end)
        if outside.any():
            rows = rows.filter(pa.array(~outside))
        return rows if rows.num_rows else None

    def _constant(self, name: str, rows: int) -> pa.Array:
        """The same value in all rows: made once, for as many rows as were ever asked for."""
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            if name == "partition":
                known = pa.array(np.full(rows, self._partition, np.int32))
            else:
                places = np.arange(rows + 1, dtype=np.int32) * np.int32(len(self._topic))
                known = pa.Array.from_buffers(
                    pa.string(), rows, [None, pa.py_buffer(places), pa.py_buffer(self._topic * rows)]
                )
            self._constants[name] = known
        return known.slice(0, rows)


def spans(octets: Octets, at: Int64s, lengths: Int64s) -> pa.Array:
    """The bytes from each position on, in a binary column; null where the length is -1. Positions rise, and no two spans overlap."""
    number = len(at)
    if not number:
        return pa.array([], pa.binary())
    nulls = lengths < 0
    lowest = int(at[0])
    # Every second of the values between these places is one of ours, the others are what lies between them.
    places = np.empty(2 * number, np.int32)
    places[0::2] = at - lowest
    places[1::2] = places[0::2] + np.maximum(lengths, 0)
    between = pa.Array.from_buffers(
        pa.binary(), 2 * number - 1, [None, pa.py_buffer(places), pa.py_buffer(octets[lowest:])]
    )
    which = np.arange(0, 2 * number, 2, dtype=np.int32)
    return between.take(pa.array(which, mask=nulls if nulls.any() else None))


def _appended(given: Input) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which batches' records all have the time at which the broker appended them."""
    appended: np.ndarray[tuple[int], np.dtype[np.bool_]] = (given.headers["attributes"] & LOG_APPEND_TIME) != 0
    return appended


def _timestamps(fields: Fields, given: Input, owners: Int64s) -> pa.Array:
    appended = _appended(given)
    millis = given.headers["base_timestamp"].astype(np.int64)[owners] + fields.timestamp_deltas
    if appended.any():
        millis = np.where(appended[owners], given.headers["max_timestamp"].astype(np.int64)[owners], millis)
    micros = np.clip(millis, -_MILLIS_MAX, _MILLIS_MAX) * 1000
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), len(micros), [None, pa.py_buffer(micros)])


def _headers(octets: Octets, headers: HeaderFields) -> pa.Array:
    keys = spans(octets, headers.keys, headers.key_lengths)
    pairs = pa.StructArray.from_arrays(
        [_text(keys), spans(octets, headers.values, headers.value_lengths)], fields=list(HEADERS_TYPE.value_type)
    )
    # Null where there is none: so does Spark's own connector.
    none = np.diff(headers.lists) == 0
    return pa.ListArray.from_arrays(
        pa.array(headers.lists.astype(np.int32)), pairs, type=HEADERS_TYPE, mask=pa.array(none)
    )


def _text(keys: pa.Array) -> pa.Array:
    """As Kafka's Java client reads them: what is no UTF-8 is replaced."""
    try:
        return pc.cast(keys, pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
