"""A schema as Spark writes it, DDL or JSON, as Arrow's types."""

import json
import re
from collections.abc import Iterator

import pyarrow as pa

from ottla.pipeline.source.errors import OptionError

SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(), "byte": pa.int8(),
    "smallint": pa.int16(), "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(),
    "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(), "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(), "varchar": pa.string(), "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
"""Spark's names of types without parameters."""

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([A-Za-z_][\w.]*)|(\d+)|([<>(),:]))")


def schema_of(text: str) -> pa.Schema:
    """``vin string, seq bigint, tags array<string>``, or ``df.schema.json()``. Raises OptionError."""
    try:
        fields = _of_json(json.loads(text)) if text.lstrip().startswith("{") else _Ddl(text).fields("")
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise OptionError(f"option value.schema: {str(error) or 'it ends too early'}, in {text[:200]}") from None
    names = [field.name.lower() for field in fields]
    if not fields or len(set(names)) < len(names):
        raise OptionError(f"option value.schema needs columns of different names: {text[:200]}")
    return pa.schema(fields)


def list_of(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))


class _Ddl:
    """Reads DDL from left to right. ValueError says what does not fit."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens, "")

    def take(self, wanted: str = "") -> str:
        token = self._next
        if wanted and token.lower() != wanted:
            raise ValueError(f"{wanted!r} is expected where there is {token or 'nothing'!r}")
        if not token:
            raise ValueError("it ends too early")
        self._next = next(self._tokens, "")
        return token

    def fields(self, end: str) -> list[pa.Field]:
        """``name type, name: type``, up to the token ``end``."""
        found = []
        while True:
            name = self.take().strip("`").replace("``", "`")
            if self._next == ":":
                self.take()
            kind = self.type()
            found.append(pa.field(name, kind, not self._is_not_null()))
            if self._next != ",":
                break
            self.take()
        if end:
            self.take(end)
        elif self._next:
            raise ValueError(f"there is {self._next!r} behind the last column")
        return found

    def _is_not_null(self) -> bool:
        """NOT NULL is read and not believed: a value that does not parse is null in all columns."""
        if self._next.lower() == "not":
            self.take()
            self.take("null")
        if self._next.lower() == "comment":
            raise ValueError("comments are not read here")
        return False

    def type(self) -> pa.DataType:
        name = self.take().lower()
        if name == "array":
            self.take("<")
            item = self.type()
            self.take(">")
            return list_of(item)
        if name == "map":
            self.take("<")
            key = self.type()
            self.take(",")
            value = self.type()
            self.take(">")
            return pa.map_(key, value)
        if name == "struct":
            self.take("<")
            return pa.struct(self.fields(">"))
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if self._next == "(" and name in ("varchar", "char"):
            self._numbers()
        if name not in SIMPLE:
            raise ValueError(f"{name!r} is no type that is read here")
        return SIMPLE[name]

    def _decimal(self) -> pa.DataType:
        numbers = self._numbers() if self._next == "(" else [10, 0]
        return pa.decimal128(numbers[0], numbers[1] if len(numbers) > 1 else 0)

    def _numbers(self) -> list[int]:
        self.take("(")
        found = [int(self.take())]
        while self._next == ",":
            self.take()
            found.append(int(self.take()))
        self.take(")")
        return found


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{text[position : position + 20].strip()!r} cannot be read")
        yield match.group().strip()
        position = match.end()


def _of_json(found: object) -> list[pa.Field]:
    """``{"type": "struct", "fields": [...]}``."""
    if not isinstance(found, dict) or found.get("type") != "struct":
        raise ValueError('JSON of a schema begins with {"type":"struct"')
    return [pa.field(field["name"], _type_of_json(field["type"])) for field in found["fields"]]


def _type_of_json(found: object) -> pa.DataType:
    if isinstance(found, str):
        return _Ddl(found).type()
    if not isinstance(found, dict):
        raise ValueError(f"{found!r} is no type")
    if found["type"] == "struct":
        return pa.struct(_of_json(found))
    if found["type"] == "array":
        return list_of(_type_of_json(found["elementType"]))
    if found["type"] == "map":
        return pa.map_(_type_of_json(found["keyType"]), _type_of_json(found["valueType"]))
    raise ValueError(f"{found['type']!r} is no type that is read here")
