"""Avro values, beside fastavro's."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.formats.avro_values import AvroValues

SCHEMA = {
    "type": "record",
    "name": "org.fleet.Telemetry",
    "fields": [
        {"name": "vin", "type": "string"},
        {"name": "seq", "type": "long"},
        {"name": "gear", "type": {"type": "enum", "name": "Gear", "symbols": ["P", "D", "R"]}},
        {"name": "speed", "type": ["null", "double"]},
        {"name": "soc", "type": ["float", "null"]},
        {"name": "locked", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "doors", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "record", "name": "At", "fields": [
            {"name": "lat", "type": "double"}, {"name": "before", "type": ["null", "Gear"]}]}},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
    ],
}  # fmt: skip
RECORDS = st.fixed_dictionaries(
    {
        "vin": st.text(max_size=200),
        "seq": st.integers(-(2**63), 2**63 - 1),
        "gear": st.sampled_from("PDR"),
        "speed": st.none() | st.floats(allow_nan=False),
        "soc": st.none() | st.floats(width=32, allow_nan=False),
        "locked": st.booleans(),
        "raw": st.binary(max_size=300),
        "id": st.binary(min_size=4, max_size=4),
        "tags": st.lists(st.text(max_size=5), max_size=5),
        "doors": st.dictionaries(st.text(max_size=5), st.integers(-(2**31), 2**31 - 1), max_size=4),
        "at": st.fixed_dictionaries({"lat": st.floats(allow_nan=False), "before": st.none() | st.sampled_from("PDR")}),
        "created": st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(
            lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
        ),
        "day": st.dates(date(1970, 1, 1), date(2200, 1, 1)),
        "price": st.decimals(-(10**17), 10**17, places=2),
    }
)
DECODER = AvroValues(json.dumps(SCHEMA).encode())


def encoded(record: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), record)
    return buffer.getvalue()


def decoded(values: list[bytes | None], decoder: AvroValues = DECODER) -> tuple[list[dict[str, Any]], list[str | None]]:
    columns, faults = decoder.decode(pa.array(values, pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=decoder.schema).to_pylist(), faults.to_pylist()


@settings(max_examples=40)
@given(st.lists(RECORDS, max_size=5))
def test_what_fastavro_writes_is_read(records: list[dict[str, Any]]) -> None:
    rows, faults = decoded([encoded(record) for record in records])

    assert [{**record, "doors": list(record["doors"].items())} for record in records] == rows
    assert not any(faults)


@settings(max_examples=40)
@given(RECORDS, st.data())
def test_a_value_that_is_cut_off_or_has_more_behind_it_is_a_fault_of_its_row_alone(
    record: dict[str, Any], data: st.DataObject
) -> None:
    good = encoded(record)
    cut = good[: data.draw(st.integers(0, len(good) - 1))]
    rows, faults = decoded([good, cut, good + b"x", None, good])

    assert rows[0] == rows[4] != rows[1]
    assert [fault is None for fault in faults] == [True, False, False, True, True]
    assert faults[2] == "there are 1 bytes behind the value"


@given(st.binary(max_size=100))
def test_any_bytes_are_a_row_or_a_fault(value: bytes) -> None:
    rows, faults = decoded([value])

    assert len(rows) == 1
    assert all(each is None for each in rows[0].values()) == (faults[0] is not None)


def test_names_are_told_apart_by_their_namespaces() -> None:
    one = {"type": "enum", "name": "Status", "namespace": "order", "symbols": ["NEW", "SENT"]}
    other = {"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID"]}  # in the record's, shop
    inner = {"type": "record", "name": "order.Line", "fields": [{"name": "of", "type": ["null", "Status"]}]}
    kinds = [one, other, "order.Status", "Status", {"type": "array", "items": "shop.Status"}, inner]
    fields = [{"name": name, "type": kind} for name, kind in zip("abcdef", kinds, strict=True)]
    schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    record = {"a": "SENT", "b": "OPEN", "c": "NEW", "d": "PAID", "e": ["PAID"], "f": {"of": "SENT"}}

    rows, faults = decoded([encoded(record, schema)], AvroValues(json.dumps(schema).encode()))

    assert (rows, faults) == ([record], [None])


def test_a_decimal_of_many_digits_is_exact() -> None:
    fields = [{"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}}]
    schema = {"type": "record", "name": "D", "fields": fields}
    wanted = Decimal("12345678901234567890123456789012345.678")

    assert decoded([encoded({"d": wanted}, schema)], AvroValues(json.dumps(schema).encode()))[0] == [{"d": wanted}]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "Expecting"),
        ('"string"', "it must be a record"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":["null","int","string"]}]}', "a is a union of 2 types"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":["null","A"]}]}', "record A is inside itself"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"Other"}]}', "type Other is unknown"),
        ('{"type":"record","name":"A"}', "'fields'"),
    ],
)  # fmt: skip
def test_a_schema_that_no_columns_can_be_is_refused(schema: str, said: str) -> None:
    with pytest.raises(OptionError, match=r"option value\.schema") as caught:
        AvroValues(schema.encode())

    assert said in str(caught.value)
