"""The records of coordinators' topics, in Kafka's own format: int16 and fields, of key and of value (kraft.md 5.1).

A key's number says what kind of record it is, a value's which version of its kind. Kinds that are not known here are passed
over when a shard is loaded: a newer node may have written them.
"""

from functools import cache
from struct import Struct
from typing import Any

import msgspec

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError

_NUMBER = Struct(">h")
_KEY_VERSION = 0
TEXT_BYTES_MAX = 32_767
_CHARACTERS_SURE = TEXT_BYTES_MAX // 4
"""So many fit in any case."""


def fits(text: str) -> bool:
    """Whether a record can hold it: requests may bring longer ones."""
    return len(text) <= _CHARACTERS_SURE or len(text.encode()) <= TEXT_BYTES_MAX


class Format:
    """The kinds of record of one internal topic."""

    def __init__(self, keys: dict[int, tuple[type[msgspec.Struct], type[msgspec.Struct]]]) -> None:
        """``keys``: classes of key and value by the key's number."""
        self._keys = keys
        self._numbers = {key: number for number, (key, _) in reversed(keys.items())}

    def record(self, key: msgspec.Struct, value: msgspec.Struct | None, version: int = 0) -> Record:
        """Raises WireError for what the format cannot hold, such as a text of more than 32,767 bytes."""
        written = _written(type(value), version)(value) if value is not None else None
        named = _NUMBER.pack(self._numbers[type(key)]) + _joined(type(key), _KEY_VERSION)(key)
        return Record(named, written, (key, value))

    def read(self, record: Record) -> tuple[Any, Any | None] | None:
        """Key and value; None for a kind that is not known. Raises WireError for what is none of ours."""
        if record.meaning is not None:
            return record.meaning
        kind = self._keys.get(_number(record.key))
        if kind is None:
            return None
        key, _ = decoder(kind[0], _KEY_VERSION)(memoryview(record.key), _NUMBER.size)
        if record.value is None:
            return key, None
        value, _ = decoder(kind[1], _number(record.value))(memoryview(record.value), _NUMBER.size)
        return key, value


def _number(data: bytes) -> int:
    if len(data) < _NUMBER.size:
        raise WireError(f"{len(data)} bytes are too few for a number")
    number: int = _NUMBER.unpack_from(data)[0]
    return number


@cache
def _joined(kind: type[msgspec.Struct], version: int) -> Any:
    encode = encoder(kind, version)
    return lambda message: b"".join(encode(message))


@cache
def _written(kind: type[msgspec.Struct], version: int) -> Any:
    encode, number = encoder(kind, version), _NUMBER.pack(version)
    return lambda message: number + b"".join(encode(message))
