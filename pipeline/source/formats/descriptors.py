"""A protobuf FileDescriptorSet (``protoc --include_imports -o FILE``), read without protobuf's own library."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.pipeline.source.formats.rows import FaultError, more_varint

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
REPEATED, REQUIRED = 3, 2
PROTO2_SYNTAX = ("", "proto2")


@dataclass(frozen=True)
class FieldOf:
    """A field of a message. ``has_presence``: whether that it is missing differs from its being zero."""

    name: str
    number: int
    type: int
    type_name: str
    is_repeated: bool
    has_presence: bool


@dataclass
class MessageOf:
    name: str
    fields: list[FieldOf] = field(default_factory=list)
    is_map_entry: bool = False


@dataclass
class Descriptors:
    """By their full names, without the leading dot."""

    messages: dict[str, MessageOf] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)


TIMESTAMP = "google.protobuf.Timestamp"
_TIMESTAMP = MessageOf(
    TIMESTAMP, [FieldOf("seconds", 1, 3, "", False, False), FieldOf("nanos", 2, 5, "", False, False)]
)
"""Known also where it was not included."""


def parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and what is in them. Raises FaultError, IndexError for bytes that are no message."""
    pos = 0
    while pos < len(data):
        tag, pos = _varint(data, pos)
        kind, number = tag & 7, tag >> 3
        if kind == VARINT:
            value, pos = _varint(data, pos)
            yield number, value
        elif kind == BYTES:
            size, pos = _varint(data, pos)
            if size > len(data) - pos or not number:
                raise FaultError("it is no FileDescriptorSet: make one by protoc --include_imports -o FILE")
            yield number, data[pos : pos + size]
            pos += size
        elif kind in (FIXED64, FIXED32):
            pos += 8 if kind == FIXED64 else 4
        else:
            raise FaultError("it is no FileDescriptorSet: make one by protoc --include_imports -o FILE")


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return (first, pos + 1) if first < 128 else more_varint(data, pos + 1, first)


def read_descriptors(data: bytes) -> Descriptors:
    found = Descriptors({TIMESTAMP: _TIMESTAMP})
    for number, file in parts(data):
        if number == 1 and isinstance(file, bytes):
            _read_file(found, file)
    return found


def _read_file(found: Descriptors, data: bytes) -> None:
    fields = list(parts(data))
    package = _text(fields, 2)
    # Editions (field 14) track presence unless told otherwise, which is not read here; so does proto2.
    implicit = _text(fields, 12) == "proto3"
    for number, part in fields:
        if number == 4 and isinstance(part, bytes):
            _read_message(found, part, package, implicit)
        elif number == 5 and isinstance(part, bytes):
            _read_enum(found, part, package)


def _read_message(found: Descriptors, data: bytes, scope: str, implicit: bool) -> None:
    fields = list(parts(data))
    name = _joined(scope, _text(fields, 1))
    message = found.messages[name] = MessageOf(name)
    for number, part in fields:
        if not isinstance(part, bytes):
            continue
        if number == 2:
            message.fields.append(_field(part, implicit))
        elif number == 3:
            _read_message(found, part, name, implicit)
        elif number == 4:
            _read_enum(found, part, name)
        elif number == 7:
            message.is_map_entry = (7, 1) in list(parts(part))


def _field(data: bytes, implicit: bool) -> FieldOf:
    found = list(parts(data))
    numbers = {number: value for number, value in found if isinstance(value, int)}
    kind, in_oneof = numbers.get(5, 0), 9 in numbers
    return FieldOf(
        name=_text(found, 1),
        number=numbers.get(3, 0),
        type=kind,
        type_name=_text(found, 6).removeprefix("."),
        is_repeated=numbers.get(4) == REPEATED,
        has_presence=not implicit or in_oneof or numbers.get(17) == 1 or kind == 11,
    )


def _read_enum(found: Descriptors, data: bytes, scope: str) -> None:
    fields = list(parts(data))
    names: dict[int, str] = {}
    for number, part in fields:
        if number == 2 and isinstance(part, bytes):
            value = list(parts(part))
            at = next((each for key, each in value if key == 2 and isinstance(each, int)), 0)
            at = at - (1 << 64) if at >> 63 else at
            names.setdefault(at, _text(value, 1))
    found.enums[_joined(scope, _text(fields, 1))] = names


def _text(fields: list[tuple[int, int | bytes]], number: int) -> str:
    return next((value.decode() for key, value in fields if key == number and isinstance(value, bytes)), "")


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
