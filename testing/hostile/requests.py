"""Requests of every API and version: valid ones about things that exist, and what becomes of them when bytes go wrong."""

import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from ottla.broker.wire.apis import APIS
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.headers import encode_request_header
from ottla.broker.wire.schema import Field, Message, message_names
from ottla.log.records import Record, encode_batch
from ottla.testing.messages import MessageMaker

KINDS = [
    (api.key, version)
    for api in APIS.values()
    if f"{api.name}Request" in message_names()
    for version in range(api.min, api.max + 1)
]
"""Every API and version of the schemas, also those that no listener offers."""

TOPIC = "flights"
MANY, MANY_STRUCTS = 5_000, 300
LENGTHS_16 = (-1, -2, 0, 0x7FFF, -0x8000)
LENGTHS_32 = (-1, -2, 0, 1, 0x7FFF, 1 << 20, 1 << 30, 0x7FFFFFFF, -0x80000000)
VARINTS = (
    b"\0",
    b"\x01",
    b"\x7f",
    b"\xff\x7f",
    b"\xff\xff\x7f",
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 6,
)
TAGS = (
    b"\x01\x00\x00",
    b"\x02\x00\x01x\x01\x02xy",
    b"\x01\x7f\xff\xff\xff\xff\x0f",
    b"\xff\xff\x03" + bytes(40),
    b"\x01\x00\x05abc",
)


class HostileMaker(MessageMaker):
    """Speaks of the topic that there is, and of more than anybody would ask."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(tame=False)
        self.topic_id = topic_id

    def value(self, schema: Message, field: Field, version: int, rng: Random) -> Any:
        if field.is_array and rng.random() < 0.005:
            one = super().value(schema, replace(field, is_array=False), version, rng)
            return [one] * (MANY_STRUCTS if field.is_struct else MANY)
        return super().value(schema, field, version, rng)

    def primitive(self, field: Field, rng: Random) -> Any:
        if rng.random() < 0.5:
            match field.type:
                case "string":
                    return rng.choice((TOPIC, TOPIC, "", "1", "x" * 300))
                case "uuid":
                    return self.topic_id
                case "bytes" | "records":
                    return bytes(encode_batch([Record(0, 1_000, b"key", b"value")]))
        return super().primitive(field, rng)

    def integer(self, field: Field, rng: Random) -> int:
        return rng.choice((0, 0, 1, -1, 2, 100)) if rng.random() < 0.6 else super().integer(field, rng)


def request(maker: HostileMaker, key: int, version: int, correlation_id: int, rng: Random) -> bytes:
    """A valid request, as its frame's content. Empty where what was drawn has no form in this version."""
    name = f"{APIS[key].name}Request"
    try:
        body = b"".join(bytes(part) for part in encoder(name, version)(maker(name, version, rng)))
    except WireError:
        return b""
    return encode_request_header(key, version, correlation_id, rng.choice(("hostile", "", None))) + body


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


Mutation = Callable[[bytearray, Random], None]


def _place(data: bytearray, rng: Random) -> int:
    """Anywhere; half of the time near the beginning, where the header and the first lengths are."""
    end = max(1, len(data))
    return rng.randrange(min(end, 64)) if rng.random() < 0.5 else rng.randrange(end)


def _overwrite(data: bytearray, at: int, new: bytes) -> None:
    data[at : at + len(new)] = new


def flip(data: bytearray, rng: Random) -> None:
    at = _place(data, rng)
    data[at] ^= 1 << rng.randrange(8)


def cut(data: bytearray, rng: Random) -> None:
    del data[_place(data, rng) :]


def lengthen(data: bytearray, rng: Random) -> None:
    data += rng.randbytes(rng.choice((1, 4, 100)))


def insert(data: bytearray, rng: Random) -> None:
    at = _place(data, rng)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))


def remove(data: bytearray, rng: Random) -> None:
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 2, 4, 16))]


def claim_16(data: bytearray, rng: Random) -> None:
    _overwrite(data, _place(data, rng), struct.pack(">h", rng.choice(LENGTHS_16)))


def claim_32(data: bytearray, rng: Random) -> None:
    _overwrite(data, _place(data, rng), struct.pack(">i", rng.choice(LENGTHS_32)))


def claim_varint(data: bytearray, rng: Random) -> None:
    _overwrite(data, _place(data, rng), rng.choice(VARINTS))


def tag(data: bytearray, rng: Random) -> None:
    """Where a tagged section may be: an empty one is a zero byte."""
    at = data.find(0, _place(data, rng))
    if at >= 0:
        data[at : at + 1] = rng.choice(TAGS)


def repeat(data: bytearray, rng: Random) -> None:
    at = _place(data, rng)
    data[at:at] = data[at : at + rng.choice((4, 40))] * rng.choice((1, 10, 200))


def nullify(data: bytearray, rng: Random) -> None:
    at = _place(data, rng)
    size = rng.choice((1, 2, 4, 16))
    _overwrite(data, at, bytes(size) if rng.random() < 0.5 else b"\xff" * size)


def another_version(data: bytearray, rng: Random) -> None:
    _overwrite(data, 2, struct.pack(">h", rng.choice((*range(-1, 20), 0x7FFF))))


def another_api(data: bytearray, rng: Random) -> None:
    _overwrite(data, 0, struct.pack(">h", rng.choice((*range(-1, 95), 0x7FFF))))


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, cut, lengthen, insert, remove, claim_16, claim_32, claim_varint, claim_varint),
    *(tag, tag, repeat, nullify, nullify, another_version, another_api),
)


def mutated(content: bytes, rng: Random) -> bytes:
    """With up to four things wrong; one in three with none."""
    data = bytearray(content)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        if data:
            rng.choice(MUTATIONS)(data, rng)
    return bytes(data)


def sent(content: bytes, rng: Random) -> bytes:
    """What goes over the wire: mostly one frame, at times with a size that is not its own."""
    data = frame(content)
    if rng.random() < 0.05:
        return struct.pack(">i", rng.choice((*LENGTHS_32, len(content) - 1, len(content) + 1, 9, 10))) + content
    return data
