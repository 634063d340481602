"""Protobuf values, beside protobuf's own library."""

import base64
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.formats.protobuf_values import ProtobufValues

Kinds = descriptor_pb2.FieldDescriptorProto
SCALARS: dict[str, tuple[int, st.SearchStrategy[Any]]] = {
    "double": (Kinds.TYPE_DOUBLE, st.floats(allow_nan=False)),
    "float": (Kinds.TYPE_FLOAT, st.floats(width=32, allow_nan=False)),
    "int32": (Kinds.TYPE_INT32, st.integers(-(2**31), 2**31 - 1)),
    "int64": (Kinds.TYPE_INT64, st.integers(-(2**63), 2**63 - 1)),
    "uint32": (Kinds.TYPE_UINT32, st.integers(0, 2**32 - 1)),
    "uint64": (Kinds.TYPE_UINT64, st.integers(0, 2**63 - 1)),
    "sint32": (Kinds.TYPE_SINT32, st.integers(-(2**31), 2**31 - 1)),
    "sint64": (Kinds.TYPE_SINT64, st.integers(-(2**63), 2**63 - 1)),
    "fixed32": (Kinds.TYPE_FIXED32, st.integers(0, 2**32 - 1)),
    "fixed64": (Kinds.TYPE_FIXED64, st.integers(0, 2**63 - 1)),
    "sfixed32": (Kinds.TYPE_SFIXED32, st.integers(-(2**31), 2**31 - 1)),
    "sfixed64": (Kinds.TYPE_SFIXED64, st.integers(-(2**63), 2**63 - 1)),
    "bool": (Kinds.TYPE_BOOL, st.booleans()),
    "string": (Kinds.TYPE_STRING, st.text(max_size=150)),
    "bytes": (Kinds.TYPE_BYTES, st.binary(max_size=150)),
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    """Every scalar plain, optional, repeated; an enum, a message, a map, a time."""
    file = descriptor_pb2.FileDescriptorProto(name="fleet.proto", package="fleet", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    enum = file.enum_type.add(name="Gear")
    for number, name in enumerate(("P", "D", "R")):
        enum.value.add(name=name, number=number)
    inner = file.message_type.add(name="At")
    inner.field.add(name="lat", number=1, type=Kinds.TYPE_DOUBLE, label=1)
    message = file.message_type.add(name="Telemetry")
    number = 0
    for name, (kind, _) in SCALARS.items():
        for form in ("one", "maybe", "many"):
            number += 1
            field = message.field.add(name=f"{form}_{name}", number=number, type=kind, label=3 if form == "many" else 1)
            if form == "maybe":
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    message.field.add(name="gear", number=100, type=Kinds.TYPE_ENUM, type_name=".fleet.Gear", label=1)
    message.field.add(name="at", number=101, type=Kinds.TYPE_MESSAGE, type_name=".fleet.At", label=1)
    message.field.add(name="ats", number=102, type=Kinds.TYPE_MESSAGE, type_name=".fleet.At", label=3)
    message.field.add(name="made", number=103, type=Kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    entry = message.nested_type.add(name="DoorsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Kinds.TYPE_INT32, label=1)
    message.field.add(
        name="doors", number=5000, type=Kinds.TYPE_MESSAGE, type_name=".fleet.Telemetry.DoorsEntry", label=3
    )
    again = file.message_type.add(name="Tree")
    again.field.add(name="left", number=1, type=Kinds.TYPE_MESSAGE, type_name=".fleet.Tree", label=1)
    return file


POOL = descriptor_pool.DescriptorPool()
TIMES = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
for each in (TIMES, _file()):
    POOL.Add(each)
SET = descriptor_pb2.FileDescriptorSet(file=[TIMES, _file()]).SerializeToString()
TELEMETRY = message_factory.GetMessageClass(POOL.FindMessageTypeByName("fleet.Telemetry"))
DEPENDS = descriptor_pb2.FileDescriptorProto(name="a.proto")
DEPENDS.message_type.add(name="Depends").field.add(name="a", number=1, type=11, type_name=".other.Thing", label=1)
WITHOUT_IMPORTS = descriptor_pb2.FileDescriptorSet(file=[DEPENDS]).SerializeToString()
DECODER = ProtobufValues(SET, "fleet.Telemetry")


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (_, values) in SCALARS.items():
        for form in ("one", "maybe"):
            if draw(st.booleans()):
                found[f"{form}_{name}"] = draw(values)
        found[f"many_{name}"] = draw(st.lists(values, max_size=3))
    return found | {
        "gear": draw(st.integers(0, 4)),
        "doors": draw(st.dictionaries(st.text(max_size=5), st.integers(-5, 5), max_size=3)),
        "ats": [{"lat": lat} for lat in draw(st.lists(st.floats(allow_nan=False), max_size=3))],
    }


def decoded(
    values: list[bytes | None], decoder: ProtobufValues = DECODER
) -> tuple[list[dict[str, Any]], list[str | None]]:
    columns, faults = decoder.decode(pa.array(values, pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=decoder.schema).to_pylist(), faults.to_pylist()


@settings(max_examples=30)
@given(messages())
def test_what_protobuf_writes_is_read(found: dict[str, Any]) -> None:
    message = TELEMETRY(**found)
    rows, faults = decoded([message.SerializeToString()])
    row = rows[0]

    assert faults == [None]
    for name in SCALARS:
        assert row[f"one_{name}"] == getattr(message, f"one_{name}")  # zero where it does not travel
        assert row[f"maybe_{name}"] == found.get(f"maybe_{name}")
        assert row[f"many_{name}"] == list(getattr(message, f"many_{name}"))
    assert row["gear"] == {0: "P", 1: "D", 2: "R"}.get(found["gear"], str(found["gear"]))
    assert dict(row["doors"]) == found["doors"]
    assert row["ats"] == found["ats"]
    assert (row["at"], row["made"]) == (None, None)


def test_messages_inside_and_times_are_read() -> None:
    message = TELEMETRY(at={"lat": 48.1})
    message.made.FromMicroseconds(1_767_225_600_123_456)  # type: ignore[attr-defined]
    row = decoded([message.SerializeToString()])[0][0]

    assert row["at"] == {"lat": 48.1}
    assert row["made"].timestamp() == 1_767_225_600.123456


def test_numbers_that_are_not_packed_are_read_and_strange_fields_passed_over() -> None:
    number = DECODER.schema.names.index("many_int32") + 1
    assert number == 9
    unpacked = bytes([number << 3, 5, number << 3, 6]) + b"\xc0\xbb\x78\x01" + b"\xca\xbb\x78\x02hi"

    assert decoded([unpacked])[0][0]["many_int32"] == [5, 6]


@settings(max_examples=20)
@given(messages(), st.data())
def test_a_value_that_is_cut_off_is_a_row_or_a_fault_and_its_neighbours_are_whole(
    found: dict[str, Any], data: st.DataObject
) -> None:
    good = TELEMETRY(**found).SerializeToString() + b"\x08"
    rows, faults = decoded([good[:-1], good, None, good[: data.draw(st.integers(0, len(good)))]])

    assert faults[:3] == [None, "the value ends too early", None]
    assert rows[0]["gear"] is not None
    assert rows[1]["gear"] is None


@given(st.binary(max_size=100))
def test_any_bytes_are_a_row_or_a_fault(value: bytes) -> None:
    rows, faults = decoded([value])

    assert (rows[0]["gear"] is None) == (faults[0] is not None)


def test_a_number_that_no_column_can_hold_is_a_fault_of_its_row() -> None:
    rows, faults = decoded(
        [TELEMETRY(one_uint64=2**64 - 1).SerializeToString(), TELEMETRY(one_uint64=7).SerializeToString()]
    )

    assert [row["one_uint64"] for row in rows] == [None, 7]
    assert faults[0] is not None
    assert faults[1] is None


def test_the_descriptor_may_be_base64_and_the_message_without_its_package() -> None:
    assert ProtobufValues(base64.b64encode(SET), "At").schema.names == ["lat"]


@pytest.mark.parametrize(
    ("schema", "message", "said"),
    [
        (SET, "Nothing", "value.message=Nothing names 0 of the messages"),
        (SET, "Tree", "message fleet.Tree is inside itself"),
        (WITHOUT_IMPORTS, "Depends", "message other.Thing is missing: make the file with protoc --include_imports"),
        (b"\xff\xffnonsense", "A", "option value.schema"),
        (b"syntax = 'proto3';", "A", "option value.schema"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: bytes, message: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        ProtobufValues(schema, message)

    assert said in str(caught.value)
