"""What the records of a node's own topics say: committed offsets, groups, transactions, metadata; Ottla's and Apache Kafka's."""

from collections.abc import Callable
from struct import Struct, error
from typing import Any

import msgspec

from ottla.broker.wire.codec import decoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import read_varint
from ottla.broker.wire.schema import Message, blocks, message
from ottla.log.records import Record
from ottla.log.tools.dump import Decode
from ottla.runtime.identifiers import id_to_text

_INT16 = Struct(">h")
_KAFKA_FRAME_VERSION = 1
_TRANSACTION_RECORDS = ("TransactionLog",)
_SHARE_RECORDS = ("ShareSnapshot", "ShareUpdate")


def decoder_of(directory_name: str) -> Decode | None:
    """The decoder for a partition's directory, by its topic; None for topics that are the users' own."""
    make = _DECODERS.get(directory_name.rpartition("-")[0])
    return None if make is None else make()


def _of_offsets() -> Decode:
    others = {*_TRANSACTION_RECORDS, *_SHARE_RECORDS}
    names = [name.removesuffix("Key") for name, text in blocks().items() if " type coordinator-key " in text]
    return _of_coordinator([name for name in names if name not in others])


def _of_coordinator(names: list[str]) -> Decode:
    by_type = {message(name + "Key").key: name for name in names}

    def decode(record: Record) -> Any:
        """Key: int16 type and its fields. Value: int16 version and its fields, or nothing: a tombstone."""
        key_type, key = _prefixed(record.key or b"")
        name = by_type[key_type]
        value = None
        if record.value is not None:
            version, rest = _prefixed(record.value)
            value = {"version": version, **_decoded(name + "Value", version, rest)}
            if value.get("protocol_type") == "consumer":
                value["members"] = [_with_subscription(member) for member in value["members"]]
        return {"type": name, "key": _decoded(name + "Key", 0, key), "value": value}

    return decode


def _with_subscription(member: dict[str, Any]) -> dict[str, Any]:
    """A classic consumer's subscription and assignment, which its group only stores."""
    parts = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
    return {**member, **{field: _client_decoded(name, member[field]) for field, name in parts.items()}}


def _client_decoded(name: str, data: bytes) -> Any:
    """What clients sent each other need not be readable, and later versions only append."""
    if not data:
        return None
    version, rest = _prefixed(data)
    try:
        found, _ = decoder(name, min(version, message(name).versions.last))(memoryview(rest), 0)
    except WireError:
        return data
    return {"version": version, **_plain(found, message(name), name)}


def _of_metadata() -> Decode:
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    from ottla.proto.metadata_pb2 import MetadataRecord

    names = {message(name).key: name for name, text in blocks().items() if " type metadata " in text}

    def decode(record: Record) -> Any:
        """Kafka's records begin with their frame's version, 1: no protobuf message can."""
        value = record.value or b""
        if value[:1] == bytes([_KAFKA_FRAME_VERSION]):
            view = memoryview(value)
            key, position = read_varint(view, 1)
            version, position = read_varint(view, position)
            return {"type": names[key], "version": version, **_decoded(names[key], version, value[position:])}
        found = MetadataRecord()
        try:
            found.ParseFromString(value)
        except DecodeError as wrong:
            raise ValueError(f"no metadata record: {wrong}") from wrong
        return MessageToDict(found, preserving_proto_field_name=True)

    return decode


def _prefixed(data: bytes) -> tuple[int, bytes]:
    try:
        return _INT16.unpack_from(data)[0], data[_INT16.size :]
    except error as short:
        raise ValueError(f"{len(data)} bytes where a type or a version was expected") from short


def _decoded(name: str, version: int, data: bytes) -> dict[str, Any]:
    try:
        found, end = decoder(name, version)(memoryview(data), 0)
    except WireError as wrong:
        raise ValueError(f"{name} version {version}: {wrong}") from wrong
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes behind {name} version {version}")
    return _plain(found, message(name), name)


def _plain(found: msgspec.Struct, schema: Message, struct: str) -> dict[str, Any]:
    """Fields as JSON has them; ids as people write them."""
    plain: dict[str, Any] = {}
    for field in schema.structs[struct]:
        value = getattr(found, field.name)
        convert: Callable[[Any], Any] | None = None
        if field.type == "uuid":
            convert = id_to_text
        elif field.is_struct:
            convert = _converter(schema, field.type)
        if convert is not None and value is not None:
            value = [convert(each) for each in value] if field.is_array else convert(value)
        plain[field.name] = value
    return plain


def _converter(schema: Message, struct: str) -> Callable[[Any], Any]:
    return lambda found: _plain(found, schema, struct)


_DECODERS: dict[str, Callable[[], Decode]] = {
    "__consumer_offsets": _of_offsets,
    "__transaction_state": lambda: _of_coordinator(list(_TRANSACTION_RECORDS)),
    "__share_group_state": lambda: _of_coordinator(list(_SHARE_RECORDS)),
    "__cluster_metadata": _of_metadata,
}
