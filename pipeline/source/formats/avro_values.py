"""Values that are Avro data (bare: one record, no file's header), decoded by the schema that wrote them."""

import json
from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from typing import Any
from uuid import UUID

import pyarrow as pa

from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.formats.rows import FaultError, Rows, Source, behind, more_varint, overrun
from ottla.pipeline.source.formats.types import list_of

Schema = Any

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_NAMED = ("record", "enum", "fixed")
_HEAD = """def decode(data):
    pos = 0
    end = len(data)"""


class AvroValues(Rows):
    """The top of the schema is a record; its fields are the columns."""

    def __init__(self, schema: bytes) -> None:
        try:
            found = _with_full_names(json.loads(schema), "")
            writer = _Writer()
            kind = writer.type_of(found, "the value")
            if isinstance(found, list) or not pa.types.is_struct(kind):
                raise ValueError("it must be a record")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(f"option value.schema: {error}, in the Avro schema {schema[:200]!r}") from None
        super().__init__(pa.schema(list(kind)), writer.function(found))


class _Writer:
    """Writes the source of the decoder, from the same schema that gives Arrow's types."""

    def __init__(self) -> None:
        self._named: dict[str, Schema] = {}
        self._inside: list[str] = []
        self._names: dict[str, Any] = dict(_NAMES)

    # -- types ----------------------------------------------------------------------------------------------------

    def type_of(self, schema: Schema, where: str) -> pa.DataType:
        """Raises ValueError for what no column can be."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self.type_of(self._branch(schema, where)[1], where)
        name = schema["type"]
        logical = _logical(schema)
        if logical is not None:
            return logical[0]
        if name == "record":
            return self._record_type(schema)
        if name == "array":
            return list_of(self.type_of(schema["items"], f"{where}'s items"))
        if name == "map":
            return pa.map_(pa.string(), self.type_of(schema["values"], f"{where}'s values"))
        if name in ("enum", "fixed"):
            return pa.string() if name == "enum" else pa.binary()
        if name not in _PRIMITIVES:
            raise ValueError(f"{where} is of type {name}, which is unknown")
        return _PRIMITIVES[name]

    def _record_type(self, schema: Schema) -> pa.DataType:
        name = schema.get("name", "")
        if name in self._inside:
            raise ValueError(f"record {name} is inside itself, which no column can be")
        self._inside.append(name)
        fields = [pa.field(field["name"], self.type_of(field["type"], field["name"])) for field in schema["fields"]]
        self._inside.pop()
        return pa.struct(fields)

    def _resolved(self, schema: Schema) -> Schema:
        """With names looked up: always a list (a union) or an object with a type that is a name."""
        while isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return {"type": schema}
            found = self._named.get(schema) or self._named.get(schema.rpartition(".")[2])
            if found is None:
                raise ValueError(f"type {schema} is unknown")
            return found
        if isinstance(schema, dict) and "name" in schema:
            self._named.setdefault(schema["name"].rpartition(".")[2], schema)
            self._named[schema["name"]] = schema
        return schema

    def _branch(self, union: list[Schema], where: str) -> tuple[int, Schema, int]:
        """The branch that is not null, and which is null (-1: none)."""
        others = [(number, each) for number, each in enumerate(union) if each != "null"]
        if len(others) != 1:
            raise ValueError(f"{where} is a union of {len(others)} types: only one beside null can be a column")
        return others[0][0], others[0][1], union.index("null") if "null" in union else -1

    # -- decoding -------------------------------------------------------------------------------------------------

    def function(self, schema: Schema) -> Callable[[bytes], tuple[Any, ...]]:
        source = Source(_HEAD)
        record = self._resolved(schema)
        columns = [self._value(source, field["type"], field["name"]) for field in record["fields"]]
        source.emit(
            "if pos != end:", "    raise behind(end - pos)", f"return ({', '.join(columns)}{',' * bool(columns)})"
        )
        return source.function(f"Avro {record.get('name', '')}", self._names)

    def _value(self, source: Source, schema: Schema, where: str) -> str:
        """Writes how a value is read; the variable that it is in."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._union(source, schema, where)
        variable = source.name("v")
        getattr(self, f"_{schema['type']}", self._fixed_size)(source, schema, variable, where)
        logical = _logical(schema)
        if logical is not None and logical[1]:
            source.emit(f"{variable} = {logical[1].format(variable)}")
        return variable

    def _union(self, source: Source, union: list[Schema], where: str) -> str:
        number, schema, null = self._branch(union, where)
        variable = source.name("u")
        which = self._number(source)
        source.emit(f"if {which} == {number}:")
        source.depth += 1
        source.emit(f"{variable} = {self._value(source, schema, where)}")
        source.depth -= 1
        if null >= 0:
            source.emit(f"elif {which} == {null}:", f"    {variable} = None")
        source.emit("else:", f"    raise FaultError('a union has no branch %d' % {which})")
        return variable

    def _number(self, source: Source) -> str:
        """A zig-zag varint."""
        variable = source.name("n")
        source.emit(
            f"{variable} = data[pos]",
            "pos += 1",
            f"if {variable} > 127:",
            f"    {variable}, pos = more_varint(data, pos, {variable})",
            f"{variable} = ({variable} >> 1) ^ -({variable} & 1)",
        )
        return variable

    def _null(self, source: Source, _schema: Schema, variable: str, _where: str) -> None:
        source.emit(f"{variable} = None")

    def _boolean(self, source: Source, _schema: Schema, variable: str, _where: str) -> None:
        source.emit(f"{variable} = data[pos] != 0", "pos += 1")

    def _int(self, source: Source, _schema: Schema, variable: str, _where: str) -> None:
        source.emit(f"{variable} = {self._number(source)}")

    _long = _int

    def _float(self, source: Source, _schema: Schema, variable: str, _where: str) -> None:
        source.emit(f"{variable} = float_(data, pos)[0]", "pos += 4")

    def _double(self, source: Source, _schema: Schema, variable: str, _where: str) -> None:
        source.emit(f"{variable} = double_(data, pos)[0]", "pos += 8")

    def _bytes(self, source: Source, _schema: Schema, variable: str, _where: str) -> None:
        size = self._number(source)
        source.emit(f"if not 0 <= {size} <= end - pos:", f"    raise overrun({size})")
        source.emit(f"{variable} = data[pos : (pos := pos + {size})]")

    def _string(self, source: Source, schema: Schema, variable: str, where: str) -> None:
        self._bytes(source, schema, variable, where)
        source.emit(f"{variable} = {variable}.decode()")

    def _fixed(self, source: Source, schema: Schema, variable: str, _where: str) -> None:
        source.emit(f"{variable} = data[pos : (pos := pos + {int(schema['size'])})]")

    def _enum(self, source: Source, schema: Schema, variable: str, _where: str) -> None:
        names = source.name("names")
        self._names[names] = tuple(map(str, schema["symbols"]))
        number = self._number(source)
        source.emit(f"if {number} < 0:", f"    raise FaultError('an enum has no symbol %d' % {number})")
        source.emit(f"{variable} = {names}[{number}]")

    def _record(self, source: Source, schema: Schema, variable: str, _where: str) -> None:
        fields = [(field["name"], self._value(source, field["type"], field["name"])) for field in schema["fields"]]
        source.emit(f"{variable} = {{{', '.join(f'{name!r}: {value}' for name, value in fields)}}}")

    def _array(self, source: Source, schema: Schema, variable: str, where: str) -> None:
        self._blocks(source, variable)
        source.emit(f"{variable}.append({self._value(source, schema['items'], where)})")
        source.depth -= 2

    def _map(self, source: Source, schema: Schema, variable: str, where: str) -> None:
        self._blocks(source, variable)
        key = self._value(source, "string", where)
        source.emit(f"{variable}.append(({key}, {self._value(source, schema['values'], where)}))")
        source.depth -= 2

    def _blocks(self, source: Source, variable: str) -> None:
        """Opens the loops over an array's or a map's blocks, two levels deep."""
        source.emit(f"{variable} = []", "while True:")
        source.depth += 1
        count = self._number(source)
        source.emit(f"if {count} == 0:", "    break", f"if {count} < 0:", f"    {count} = -{count}")
        source.depth += 1
        self._number(source)  # the block's size in bytes, for those who pass over it
        source.depth -= 1
        source.emit(f"if {count} > end - pos:", f"    raise overrun({count})", f"for _ in range({count}):")
        source.depth += 1

    def _fixed_size(self, _source: Source, schema: Schema, _variable: str, where: str) -> None:
        raise ValueError(f"{where} is of type {schema['type']}, which is unknown")


def _with_full_names(schema: Schema, namespace: str) -> Schema:
    """The schema with each name, where it is given and where it is used, in its namespace: another one may have a type of that name."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _full_name(schema, namespace)
    if isinstance(schema, list):
        return [_with_full_names(each, namespace) for each in schema]
    found = dict(schema)
    if schema["type"] in _NAMED:
        name = _full_name(schema["name"], schema.get("namespace", namespace))
        namespace, found["name"] = name.rpartition(".")[0], name
    elif not isinstance(schema["type"], str):
        found["type"] = _with_full_names(schema["type"], namespace)
    for inside in found.keys() & {"items", "values"}:
        found[inside] = _with_full_names(schema[inside], namespace)
    if "fields" in found:
        found["fields"] = [each | {"type": _with_full_names(each["type"], namespace)} for each in schema["fields"]]
    return found


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical(schema: Schema) -> tuple[pa.DataType, str] | None:
    """The column's type, and the expression that makes its value of the plain one; None for a plain type."""
    logical = schema.get("logicalType")
    if logical == "decimal":
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        return pa.decimal128(precision, scale), f"decimal_({{}}, {scale})"
    return _LOGICAL.get((schema["type"], logical))


def _decimal(data: bytes, scale: int) -> Decimal:
    return Decimal(f"{int.from_bytes(data, 'big', signed=True)}E-{scale}")  # exact, whatever the context's precision


_LOGICAL = {
    ("int", "date"): (pa.date32(), ""),
    ("long", "timestamp-millis"): (pa.timestamp("us", tz="UTC"), "{} * 1000"),
    ("long", "timestamp-micros"): (pa.timestamp("us", tz="UTC"), ""),
    ("long", "local-timestamp-millis"): (pa.timestamp("us"), "{} * 1000"),
    ("long", "local-timestamp-micros"): (pa.timestamp("us"), ""),
    ("fixed", "uuid"): (pa.string(), "str(UUID(bytes={}))"),
}
"""Other logical types are what they are without: time-millis an int, and so on."""

_NAMES: dict[str, Any] = {
    "FaultError": FaultError,
    "UUID": UUID,
    "behind": behind,
    "decimal_": _decimal,
    "double_": Struct("<d").unpack_from,
    "float_": Struct("<f").unpack_from,
    "more_varint": more_varint,
    "overrun": overrun,
}
