"""A fleet's records as Arrow: what producers, encoders and Spark take."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.numbers import Integers
from ottla.pipeline.fleet.payload import KEY_BYTES, Payload, keys_of, payload
from ottla.pipeline.fleet.sending import RECORDS_A_SLICE, sent_between, slices
from ottla.pipeline.fleet.text import Bytes
from ottla.pipeline.wire.partitioner import murmur2_partitions

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("ms", tz="UTC"))])


def vehicles_of(fleet: Fleet, partitions: int, chosen: set[int] | None = None) -> Integers:
    """The vehicles whose records go to the chosen ones of so many partitions; all without a choice."""
    vehicles = np.arange(fleet.vehicles)
    if chosen is None:
        return vehicles
    return vehicles[np.isin(partitions_of(vehicles, partitions), list(chosen))]


def partitions_of(vehicles: Integers, partitions: int) -> Integers:
    """Where each vehicle's records go: as any producer of Kafka's sends them, by their key."""
    return murmur2_partitions(_keys(keys_of(vehicles)), partitions)


def record_batches(
    fleet: Fleet, kind: str, vehicles: Integers | None = None, records: int = RECORDS_A_SLICE
) -> Iterator[pa.RecordBatch]:
    """What the vehicles (all of them, or these, ascending) send, in order; about so many records at a time, and empty ones are left out."""
    chosen = np.arange(fleet.vehicles) if vehicles is None else vehicles
    for since_us, until_us in slices(fleet, records):
        rows = sent_between(fleet, kind, since_us, until_us, chosen)
        if len(rows.number):
            yield as_batch(payload(fleet, kind, rows))


def record_batches_by_time(
    fleet: Fleet, kinds: tuple[str, ...], records: int = RECORDS_A_SLICE
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """What the whole fleet sends of several kinds, side by side in time."""
    vehicles = np.arange(fleet.vehicles)
    for since_us, until_us in slices(fleet, records):
        for kind in kinds:
            rows = sent_between(fleet, kind, since_us, until_us, vehicles)
            if len(rows.number):
                yield kind, as_batch(payload(fleet, kind, rows))


def as_batch(made: Payload) -> pa.RecordBatch:
    """The bytes as they are, not copied."""
    return pa.record_batch(
        [
            _keys(made.keys),
            _binary(made.starts, made.values),
            pa.array(made.timestamps_ms, SCHEMA.field("timestamp").type),
        ],
        schema=SCHEMA,
    )


def _keys(keys: Bytes) -> pa.Array:
    return _binary(np.arange(len(keys) + 1) * KEY_BYTES, keys.reshape(-1))


def _binary(starts: Integers, text: Bytes) -> pa.Array:
    offsets, values = pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(text)
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1, [None, offsets, values])
