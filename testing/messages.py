"""Random messages of any schema."""

import random
from typing import Any

import msgspec

from ottla.broker.wire.codec import message_class, message_module
from ottla.broker.wire.layout import element_of
from ottla.broker.wire.schema import Field, Message, message

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
LETTERS = "aZ09.-_é€𝄞"
FIRST_OF_2000_MS = 946_684_800_000


class MessageMaker:
    """Fills the fields that a version has; what it lacks keeps its default.

    A tame maker stays inside what the oracles' types can hold: they have enums for error codes, and dates for times.
    """

    def __init__(self, tame: bool) -> None:
        self.tame = tame

    def __call__(self, name: str, version: int, rng: random.Random) -> msgspec.Struct:
        return self.struct(message(name), name, version, rng)

    def struct(self, schema: Message, struct: str, version: int, rng: random.Random) -> msgspec.Struct:
        cls = message_class(struct) if struct == schema.name else getattr(message_module(schema), struct)
        fields = [field for field in schema.structs[struct] if version in field.versions]
        made: msgspec.Struct = cls(**{field.name: self.value(schema, field, version, rng) for field in fields})
        return made

    def value(self, schema: Message, field: Field, version: int, rng: random.Random) -> Any:
        if version in field.nullable and rng.random() < 0.25:
            return None
        if field.is_array:
            # Long enough, now and then, for a length of two bytes.
            count = 150 if not field.is_struct and rng.random() < 0.02 else rng.randint(0, 2)
            return [self.value(schema, element_of(field), version, rng) for _ in range(count)]
        if field.is_struct:
            return self.struct(schema, field.type, version, rng)
        return self.primitive(field, rng)

    def primitive(self, field: Field, rng: random.Random) -> Any:
        if field.type == "bool":
            return rng.random() < 0.5
        if field.type == "float64":
            return rng.choice([0.0, -1.5, 1e300, 3.25])
        if field.type == "uuid":
            return rng.randbytes(16) if rng.random() < 0.9 else bytes(16)
        if field.type == "string":
            return "".join(rng.choices(LETTERS, k=rng.randint(0, 9))) * rng.choice([1, 1, 1, 1, 20])
        if field.type in ("bytes", "records"):
            return rng.randbytes(rng.choice([0, 1, 5, 130, 3000]))
        return self.integer(field, rng)

    def integer(self, field: Field, rng: random.Random) -> int:
        low, high = INTEGERS[field.type]
        if self.tame and "error_code" in field.name:
            return rng.randint(0, 129)
        if self.tame and ("time" in field.name or field.name.endswith("_ms")) and field.type == "int64":
            return FIRST_OF_2000_MS + rng.randint(0, 10**12)
        if rng.random() < 0.3:
            return rng.choice([low, high, 0, 1])
        return rng.randint(low, high)
