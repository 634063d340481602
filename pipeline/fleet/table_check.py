"""What a table holds of a fleet, judged from its files, without Spark."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from ottla.pipeline.fleet.judge import Judge
from ottla.pipeline.fleet.names import Names, of_columns, of_values
from ottla.pipeline.fleet.numbers import Integers

_OFFSET_BITS = 48


class NoFleetTableError(Exception):
    """The table's columns cannot tell which records it holds."""


def judge_files(
    judge: Judge, files: Sequence[str], base: str, advance: Callable[[int], None] = lambda rows: None
) -> bool:
    """Has a judge take the rows of these Parquet files; False if they have no offsets, and so no order. Raises NoFleetTableError.

    A table's files come in any order, so 24 bytes a row are kept until all are read.
    """
    if not files:
        return True
    table = ds.dataset(list(files), format="parquet", partitioning="hive", partition_base_dir=base)
    columns = _columns(table.schema.names)
    has_order = "offset" in columns
    vehicles, numbers, places = [], [], []
    for batch in table.to_batches(columns=columns, batch_size=131_072):
        vehicle, number = _names(batch)
        vehicles.append(vehicle.astype(np.int32))
        numbers.append(number)
        places.append(_places(batch) if has_order else vehicle << _OFFSET_BITS - 10 | number)
        advance(batch.num_rows)
    _take(judge, np.concatenate(vehicles), np.concatenate(numbers), np.concatenate(places))
    return has_order


def _take(judge: Judge, vehicle: NDArray[np.int32], number: Integers, places: Integers) -> None:
    order = np.argsort(places, kind="stable")
    for first in range(0, len(order), 1 << 20):
        some = order[first : first + (1 << 20)]
        judge.take(vehicle[some].astype(np.int64), number[some])


def _columns(names: list[str]) -> list[str]:
    told = ["vin", "seq"] if {"vin", "seq"} <= set(names) else ["value"]
    if not set(told) <= set(names):
        raise NoFleetTableError("no fleet's table: it has neither vin and seq, nor value, among its columns")
    return told + (["partition", "offset"] if {"partition", "offset"} <= set(names) else [])


def _names(batch: pa.RecordBatch) -> Names:
    if "value" in batch.schema.names:
        return of_values(batch["value"])
    return of_columns(batch["vin"], batch["seq"])


def _places(batch: pa.RecordBatch) -> Integers:
    partition, offset = (batch[name].cast(pa.int64()).to_numpy() for name in ("partition", "offset"))
    places: Integers = (partition << _OFFSET_BITS) | offset
    return places
