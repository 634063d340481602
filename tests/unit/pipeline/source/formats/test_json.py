"""JSON values, in chunks and where a chunk does not parse."""

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.formats.json_values import JsonValues

DECODER = JsonValues(b"vin string, seq bigint, at struct<lat: double>, tags array<string>, made timestamp")
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "vin": st.none() | st.text(max_size=30),
        "seq": st.none() | st.integers(-(2**63), 2**63 - 1),
        "at": st.none() | st.fixed_dictionaries({"lat": st.floats(allow_nan=False, allow_infinity=False)}),
        "tags": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "more": st.lists(st.integers()),
    },
)
BAD = [
    b"",
    b"  ",
    b"[1]",
    b"7",
    b"{",
    b'{"seq":"x"}',
    b'{"seq":1}{"seq":2}',
    b'{"seq":1}\n{"seq":2}',
    b'{"vin":"',
    b"\xff\xfe",
    b'{"vin":"\xff"}',
    b'{"vin":"\xed\xa0\x80"}',
    b"{}x{}",
]


def decoded(values: list[bytes | None], decoder: JsonValues = DECODER) -> tuple[list[dict[str, Any]], list[str | None]]:
    columns, faults = decoder.decode(pa.array(values, pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=decoder.schema).to_pylist(), faults.to_pylist()


def expected(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found.get(name) for name in DECODER.schema.names}


@given(
    st.lists(st.tuples(OBJECTS | st.none() | st.sampled_from(BAD), st.sampled_from([b"", b" ", b"\n"])), max_size=40)
)
def test_every_value_is_its_row_whatever_its_neighbours_are(found: list[tuple[Any, bytes]]) -> None:
    values = [space + json.dumps(each).encode() + space if isinstance(each, dict) else each for each, space in found]
    rows, faults = decoded(values)

    for (each, _), row, fault in zip(found, rows, faults, strict=True):
        assert row == (expected(each) if isinstance(each, dict) else dict.fromkeys(DECODER.schema.names))
        assert (fault is not None) == isinstance(each, bytes)


def test_values_that_join_to_something_else_stay_apart() -> None:
    rows, faults = decoded([b'{"tags":["a"', b'"b"]}', b'{"seq":1}{"seq":2}', b'{"seq":3}'])

    assert [row["seq"] for row in rows] == [None, None, None, 3]
    assert [fault is not None for fault in faults] == [True, True, True, False]


def test_a_bad_value_among_many_is_the_only_one() -> None:
    values: list[bytes | None] = [b'{"seq":%d}' % number for number in range(20_000)]
    values[12_345] = b"nonsense"
    rows, faults = decoded(values)

    assert [number for number, fault in enumerate(faults) if fault] == [12_345]
    assert [number for number in range(20_000) if number != 12_345] == [
        row["seq"] for row in rows if row["seq"] is not None
    ]


def test_times_are_read_as_they_are_written() -> None:
    rows, faults = decoded([b'{"made":"2026-01-01T00:00:00.5Z"}', b'{"made":"yesterday"}'])

    assert rows[0]["made"].isoformat() == "2026-01-01T00:00:00.500000+00:00"
    assert faults[1] is not None


def test_a_slice_of_an_array_is_read_as_such() -> None:
    values = pa.array([b"x", b'{"seq":1}', None, b'{"seq":2}'], pa.binary()).slice(1)
    columns, faults = DECODER.decode(values)

    assert columns[1].to_pylist() == [1, None, 2]
    assert faults.to_pylist() == [None] * 3


@pytest.mark.parametrize(
    "schema",
    ["vin", "vin texts", "vin string,", "m map<string,int>", "b binary", "a int, A int", "", '{"type":"array"}'],
)
def test_a_schema_that_is_none_is_refused(schema: str) -> None:
    with pytest.raises(OptionError, match=r"option value\.schema"):
        JsonValues(schema.encode())


def test_a_schema_is_ddl_or_the_json_of_sparks() -> None:
    ddl = JsonValues(b"`a b` int not null, d decimal(10,2), n struct<x: array<bigint>>").schema
    field = {"nullable": True, "metadata": {}}
    spark = {"type": "struct", "fields": [
        {"name": "a b", "type": "integer", **field},
        {"name": "d", "type": "decimal(10,2)", **field},
        {"name": "n", "type": {"type": "struct", "fields": [
            {"name": "x", "type": {"type": "array", "elementType": "long", "containsNull": True}, **field}]}, **field},
    ]}  # fmt: skip

    assert ddl == JsonValues(json.dumps(spark).encode()).schema
    assert ddl.field("d").type == pa.decimal128(10, 2)


def test_days_are_iso_texts_as_times_are() -> None:
    decoder = JsonValues(b"day date, days array<date>, trip struct<ended: date>")
    texts = [b'{"day":"2013-01-01","days":["0001-01-01",null],"trip":{"ended":"9999-12-31"}}', b'{"day":"1.1.2013"}']
    rows, faults = decoded([*texts, b'{"day":15706}'], decoder)
    ended = {"ended": date(9999, 12, 31)}
    assert rows[0] == {"day": date(2013, 1, 1), "days": [date(1, 1, 1), None], "trip": ended}
    assert [fault is None for fault in faults] == [True, False, False]
