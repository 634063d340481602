"""Each record's vehicle and number are read back from what was written, and from nothing else."""

import json

import numpy as np
import pyarrow as pa
import pytest

from ottla.pipeline.fleet.batches import partitions_of, record_batches, vehicles_of
from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.names import of_columns, of_values
from ottla.pipeline.fleet.sending import KINDS

FLEET = Fleet(records=20_000, vehicles=30, offline=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_values_name_their_vehicle_and_number(kind: str) -> None:
    values = pa.concat_arrays([batch["value"] for batch in record_batches(FLEET, kind, records=3_000)])
    read = [json.loads(value.as_py()) for value in values]
    vehicle, number = of_values(values)
    assert vehicle.tolist() == [int(each["vin"][10:]) for each in read]
    assert number.tolist() == [each["seq"] for each in read]
    of_slice = of_values(values[17:100])
    assert (of_slice[0].tolist(), of_slice[1].tolist()) == (vehicle[17:100].tolist(), number[17:100].tolist())


def test_columns_name_them_too() -> None:
    vin = pa.array(["5FLEET00000000012", None, "5FLEET0000000001x", "other", "5FLEET00000000013"])
    vehicle, number = of_columns(vin, pa.array([3, 4, 5, 6, None], pa.int32()))
    assert (vehicle.tolist(), number.tolist()) == ([12, -1, -1, -1, -1], [3, -1, -1, -1, -1])
    assert of_columns(pa.array(["x"]), pa.array([1]))[0].tolist() == [-1]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"x" * 100,
        b'{"vin":"5FLEET00000000001","seq":,"created_at":1767225600000}',
        b'{"vin":"5FLEET00000000001","seq":-4,"created_at":1767225600000}',
        b'{"vin":"5FLEET000000000x1","seq":4,"created_at":1767225600000}',
        b'{"vin":"5FLEET00000000001","sex":4,"created_at":1767225600000}',
        b'{"vin":"5FLEET00000000001","seq":12345678901,"created_at":1767225600000}',
        b'{"vin":"5FLEET00000000001","seq":4',
    ],
)
def test_what_is_none_of_a_fleets_is_named_minus_one(value: bytes | None) -> None:
    good = b'{"vin":"5FLEET00000000001","seq":1234567890,"created_at":1767225600000}'
    vehicle, number = of_values(pa.array([value, good], pa.binary()))
    assert (vehicle.tolist(), number.tolist()) == ([-1, 1], [-1, 1234567890])
    assert of_values(pa.array([value], pa.binary()))[0].tolist() == [-1]


def test_nothing_has_no_names() -> None:
    assert of_values(pa.array([], pa.binary()))[0].tolist() == []
    assert of_columns(pa.array([], pa.string()), pa.array([], pa.int64()))[0].tolist() == []


def test_vehicles_of_all_partitions_are_all_vehicles_once() -> None:
    parts = [vehicles_of(FLEET, 4, {0, 2}), vehicles_of(FLEET, 4, {1}), vehicles_of(FLEET, 4, {3})]
    assert sorted(np.concatenate(parts).tolist()) == list(range(30))
    assert set(partitions_of(parts[0], 4).tolist()) <= {0, 2}
