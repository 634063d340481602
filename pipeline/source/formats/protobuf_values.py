"""Values that are protobuf messages, decoded by a descriptor: no library of protobuf's is needed on an executor."""

import base64
import binascii
from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Any

import pyarrow as pa

from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.formats.descriptors import (
    BYTES,
    FIXED32,
    FIXED64,
    TIMESTAMP,
    VARINT,
    Descriptors,
    FieldOf,
    read_descriptors,
)
from ottla.pipeline.source.formats.rows import FaultError, Rows, behind, more_varint, overrun, said
from ottla.pipeline.source.formats.types import list_of

Decode = Callable[[bytes, int, int], list[Any]]
"""A message's fields in their order, of the bytes from a position to an end."""

DOUBLE, FLOAT, INT64, UINT64, INT32, FIX64, FIX32, BOOL, STRING = range(1, 10)
MESSAGE, BINARY, UINT32, ENUM, SFIX32, SFIX64, SINT32, SINT64 = range(11, 19)

_TYPES = {
    DOUBLE: pa.float64(), FLOAT: pa.float32(), INT64: pa.int64(), UINT64: pa.int64(), INT32: pa.int32(), FIX64: pa.int64(),
    FIX32: pa.int64(), BOOL: pa.bool_(), STRING: pa.string(), BINARY: pa.binary(), UINT32: pa.int64(), ENUM: pa.string(),
    SFIX32: pa.int32(), SFIX64: pa.int64(), SINT32: pa.int32(), SINT64: pa.int64(),
}  # fmt: skip
_ZEROS: dict[int, Any] = {DOUBLE: 0.0, FLOAT: 0.0, BOOL: False, STRING: "", BINARY: b""}
_FIXED = {
    DOUBLE: (FIXED64, "<d"), FLOAT: (FIXED32, "<f"), FIX64: (FIXED64, "<Q"), FIX32: (FIXED32, "<I"),
    SFIX32: (FIXED32, "<i"), SFIX64: (FIXED64, "<q"),
}  # fmt: skip
_SIZES = {FIXED64: 8, FIXED32: 4}


class ProtobufValues(Rows):
    """The fields of the named message are the columns, under the names that they have in the .proto file."""

    def __init__(self, schema: bytes, message: str) -> None:
        try:
            descriptors = read_descriptors(_descriptor_bytes(schema))
            name = _full_name(descriptors, message)
            kind = _Types(descriptors).message(name)
        except (FaultError, IndexError, UnicodeDecodeError) as error:
            raise OptionError(f"option value.schema: {said(error)}") from None
        decode = _Decoders(descriptors).message(name)
        super().__init__(pa.schema(list(kind)), lambda data: tuple(decode(data, 0, len(data))))


def _descriptor_bytes(schema: bytes) -> bytes:
    """The bytes of a file, or the base64 of an option."""
    try:
        return base64.b64decode(schema.strip(), validate=True)
    except binascii.Error:
        return schema


def _full_name(descriptors: Descriptors, message: str) -> str:
    found = [name for name in descriptors.messages if name == message or name.endswith(f".{message}")]
    exact = [name for name in found if name == message] or found
    if len(exact) != 1:
        known = ", ".join(sorted(name for name, each in descriptors.messages.items() if not each.is_map_entry)[:10])
        raise FaultError(f"value.message={message} names {len(exact)} of the messages {known}")
    return exact[0]


class _Types:
    """Arrow's types of messages. Raises FaultError for one that is inside itself, which no column can be."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._inside: list[str] = []

    def message(self, name: str) -> pa.DataType:
        if name in self._inside:
            raise FaultError(f"message {name} is inside itself, which no column can be")
        if name not in self._descriptors.messages:
            raise FaultError(f"message {name} is missing: make the file with protoc --include_imports")
        self._inside.append(name)
        fields = [pa.field(each.name, self._field(each)) for each in self._descriptors.messages[name].fields]
        self._inside.pop()
        return pa.struct(fields)

    def _field(self, each: FieldOf) -> pa.DataType:
        if each.type == MESSAGE:
            entry = self._descriptors.messages.get(each.type_name)
            if entry is not None and entry.is_map_entry:
                key, value = sorted(entry.fields, key=lambda found: found.number)
                return pa.map_(self._field(key), self._field(value))
            kind = pa.timestamp("us", tz="UTC") if each.type_name == TIMESTAMP else self.message(each.type_name)
        elif each.type in _TYPES:
            kind = _TYPES[each.type]
        else:
            raise FaultError(f"field {each.name} is a group, which is not read here")
        return list_of(kind) if each.is_repeated else kind


class _Decoders:
    """A function for each message."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._made: dict[str, Decode] = {}

    def message(self, name: str) -> Decode:
        if name not in self._made:
            message = self._descriptors.messages[name]
            fields = [
                replace(each, has_presence=each.type == MESSAGE) if message.is_map_entry else each
                for each in message.fields
            ]
            readers = {each.number: self._reader(place, each) for place, each in enumerate(fields)}
            self._made[name] = _message_decoder(readers, [self._blank(each) for each in fields], self._maps(fields))
        return self._made[name]

    def _blank(self, each: FieldOf) -> Any:
        """Of a field that does not travel: null where that is told from zero, else zero."""
        if each.is_repeated or each.has_presence:
            return None
        return _number(each, self._descriptors)(0) if each.type == ENUM else _ZEROS.get(each.type, 0)

    def _maps(self, fields: list[FieldOf]) -> list[int]:
        return [place for place, each in enumerate(fields) if self.entry(each)]

    def entry(self, each: FieldOf) -> bool:
        found = self._descriptors.messages.get(each.type_name) if each.type == MESSAGE else None
        return found is not None and found.is_map_entry

    def _reader(self, place: int, each: FieldOf) -> "_Reader":
        if each.type == MESSAGE:
            return _Reader(place, each, BYTES, self._of_message(each))
        if each.type in _FIXED:
            wire, layout = _FIXED[each.type]
            unpack = Struct(layout).unpack
            return _Reader(place, each, wire, lambda data: unpack(data)[0])
        if each.type in (STRING, BINARY):
            return _Reader(place, each, BYTES, bytes.decode if each.type == STRING else bytes)
        return _Reader(place, each, VARINT, _number(each, self._descriptors))

    def _of_message(self, each: FieldOf) -> Callable[[bytes], Any]:
        inner = self.message(each.type_name)
        if each.type_name == TIMESTAMP:
            return lambda data: _timestamp(inner(data, 0, len(data)))
        names = [found.name for found in self._descriptors.messages[each.type_name].fields]
        if self.entry(each):
            return lambda data: tuple(inner(data, 0, len(data)))
        return lambda data: dict(zip(names, inner(data, 0, len(data)), strict=True))


class _Reader:
    """How one field is read: ``wire`` is how it travels, and ``convert`` makes a value of what travelled."""

    __slots__ = ("convert", "is_repeated", "packable", "place", "wire")

    def __init__(self, place: int, each: FieldOf, wire: int, convert: Callable[[Any], Any]) -> None:
        self.place, self.wire, self.convert = place, wire, convert
        self.is_repeated = each.is_repeated
        self.packable = each.is_repeated and wire != BYTES


def _message_decoder(readers: dict[int, _Reader], blank: list[Any], maps: list[int]) -> Decode:
    repeated = [reader.place for reader in readers.values() if reader.is_repeated]
    # By the tag as it travels: number and wire type.
    by_tag = {number << 3 | reader.wire: reader for number, reader in readers.items()}
    packed = {number << 3 | BYTES: reader for number, reader in readers.items() if reader.packable}

    def decode(data: bytes, pos: int, end: int) -> list[Any]:
        found = blank.copy()
        for place in repeated:
            found[place] = []
        while pos < end:
            tag, pos = _varint(data, pos)
            value, pos = _taken(data, pos, end, tag & 7)
            reader = by_tag.get(tag)
            if reader is None:
                if tag in packed:
                    found[packed[tag].place] += _unpacked(value, packed[tag])
            elif reader.is_repeated:
                found[reader.place].append(reader.convert(value))
            else:
                found[reader.place] = reader.convert(value)
        if pos != end:
            raise behind(-1)
        for place in maps:
            found[place] = list(dict(found[place]).items())  # the last entry of a key counts
        return found

    return decode


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return (first, pos + 1) if first < 128 else more_varint(data, pos + 1, first)


def _taken(data: bytes, pos: int, end: int, kind: int) -> tuple[Any, int]:
    """What a field travels as: a number, or bytes."""
    if kind == VARINT:
        return _varint(data, pos)
    if kind == BYTES:
        size, pos = _varint(data, pos)
    elif kind in _SIZES:
        size = _SIZES[kind]
    else:
        raise FaultError(f"a field travels in wire type {kind}, which is not read here")
    if size > end - pos:
        raise overrun(size)
    return data[pos : pos + size], pos + size


def _unpacked(data: bytes, reader: _Reader) -> list[Any]:
    if reader.wire in _SIZES:
        size = _SIZES[reader.wire]
        if len(data) % size:
            raise behind(len(data) % size)
        return [reader.convert(data[at : at + size]) for at in range(0, len(data), size)]
    found, pos = [], 0
    while pos < len(data):
        number, pos = _varint(data, pos)
        found.append(reader.convert(number))
    return found


def _number(each: FieldOf, descriptors: Descriptors) -> Callable[[int], Any]:
    if each.type == BOOL:
        return bool
    if each.type == ENUM:
        names = descriptors.enums.get(each.type_name, {})
        return lambda value: names.get(_signed(value)) or str(_signed(value))
    if each.type in (SINT32, SINT64):
        return lambda value: (value >> 1) ^ -(value & 1)
    if each.type in (INT32, INT64):
        return _signed
    return int


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _timestamp(fields: list[Any]) -> int:
    seconds, nanos = fields
    return int(seconds) * 1_000_000 + int(nanos) // 1000
