"""How the fields of a message lie on the wire in one version: struct formats and least sizes."""

from dataclasses import replace
from struct import Struct, calcsize

from ottla.broker.wire.schema import NEVER, Field, Message

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The struct format of the types of fixed size."""


def minimum_size(schema: Message, version: int, struct: str) -> int:
    """The least bytes that a struct takes in a version, and at least 1, so that counts are bounded by bytes."""
    flexible = version in schema.flexible
    size = int(flexible)
    for field in schema.structs[struct]:
        if version in field.versions and version not in field.tagged:
            size += field_minimum_size(schema, version, field)
    return max(1, size)


def field_minimum_size(schema: Message, version: int, field: Field) -> int:
    if field.is_array or field.type in ("string", "bytes", "records"):
        return calcsize(">" + length_format(schema, version, field))
    if not field.is_struct:
        return calcsize(">" + FIXED[field.type])
    return 1 if version in field.nullable else minimum_size(schema, version, field.type)


def length_format(schema: Message, version: int, field: Field) -> str:
    """The struct format of a length's first (in old versions, only) part."""
    if version in schema.flexible and not field.inflexible:
        return "B"
    return "h" if field.type == "string" and not field.is_array else "i"


def element_of(field: Field) -> Field:
    """The field that an array's element is: never null, never an array."""
    return replace(field, is_array=False, nullable=NEVER)


class Layouts:
    """The struct layouts that a compiled function uses, as globals named after their number."""

    def __init__(self) -> None:
        self.formats: dict[str, int] = {}

    def packer(self, layout: str) -> str:
        return f"pack_{self.formats.setdefault(layout, len(self.formats))}"

    def unpacker(self, layout: str) -> str:
        return f"unpack_{self.formats.setdefault(layout, len(self.formats))}"

    def globals(self) -> dict[str, object]:
        structs = [Struct(layout) for layout in self.formats]
        return {f"pack_{i}": struct.pack for i, struct in enumerate(structs)} | {
            f"unpack_{i}": struct.unpack_from for i, struct in enumerate(structs)
        }
