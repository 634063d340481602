"""``throttle_time_ms`` of a response that is encoded already: quotas are nobody's business who makes responses.

Most have it first. The others (Produce and ApiVersions among them) are decoded and encoded once more, which only a client pays for
that is throttled.
"""

from enum import Enum
from functools import cache
from struct import Struct
from typing import cast

import msgspec

from ottla.broker.wire.apis import APIS
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.primitives import Buffer
from ottla.broker.wire.schema import message

FIELD = "throttle_time_ms"
_INT32 = Struct(">i")


class Place(Enum):
    """Where a response's version has the field."""

    NOWHERE = "nowhere"
    FIRST = "first"
    LATER = "later"


def throttled(api_key: int, version: int, body: list[Buffer], throttle_time_ms: int) -> list[Buffer]:
    """The response with that time; as it is where it has none. Payloads of one that has it first are not copied."""
    place = place_of(api_key, version)
    if place is Place.NOWHERE:
        return body
    if place is Place.FIRST and len(body[0]) >= _INT32.size:
        head = bytearray(body[0])
        _INT32.pack_into(head, 0, throttle_time_ms)
        return [bytes(head), *body[1:]]
    name = response_name(api_key)
    response, _ = decoder(name, version)(memoryview(b"".join(body)), 0)
    changed = msgspec.structs.replace(cast(msgspec.Struct, response), **{FIELD: throttle_time_ms})
    return encoder(name, version)(changed)


def response_name(api_key: int) -> str:
    return f"{APIS[api_key].name}Response"


@cache
def place_of(api_key: int, version: int) -> Place:
    """NOWHERE also for versions that there are not, whose answer is another version's."""
    try:
        schema = message(response_name(api_key))
    except KeyError:
        return Place.NOWHERE
    if version not in schema.versions:
        return Place.NOWHERE
    names = [field.name for field in schema.fields if version in field.versions]
    if FIELD not in names:
        return Place.NOWHERE
    return Place.FIRST if names[0] == FIELD else Place.LATER
