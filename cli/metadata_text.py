"""Metadata records, control records and images in words and as plain values (for JSON)."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import Message

from ottla.log.records import ControlType, control_type_of, decode_records
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.causes import in_words
from ottla.quorum.control_records import decode_kraft_version, decode_voters
from ottla.quorum.metadata.archive import RawBatch
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import decode
from ottla.runtime.errors import KafkaError
from ottla.runtime.identifiers import id_to_text

Plain = dict[str, Any]
_ID_BYTES = 16


def time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


class Names:
    """Topics by id, gathered from the records that create them: people do not know ids."""

    def __init__(self, image: MetadataImage | None = None) -> None:
        topics = image.topics_by_id.values() if image is not None else ()
        self._by_id = {id_to_text(topic.id): topic.name for topic in topics}

    def add_to(self, row: Plain) -> Plain:
        """``row`` of a record, with its topic's name."""
        fields = row["fields"]
        if row["kind"] == "topic":
            self._by_id[fields["topic_id"]] = fields["name"]
        elif "topic_id" in fields:
            row["fields"] = {"topic": self._by_id.get(fields["topic_id"]), **fields}
        return row


def batch_row(batch: RawBatch, names: Names) -> Plain:
    """A batch with its records. Raises UnreadableRecordError."""
    header = batch.header
    row: Plain = {
        "offset": header.base_offset,
        "last_offset": header.last_offset,
        "epoch": header.leader_epoch,
        "time": time_text(header.max_timestamp),
        "cause": "",
    }
    if header.is_control:
        row["cause"] = "the quorum's own record"
        row["records"] = list(_control_rows(batch))
        return row
    decoded = batch.decoded()
    row["cause"] = in_words(decoded.cause)
    row["records"] = [
        names.add_to({"offset": header.base_offset + index, **record_row(data)})
        for index, data in enumerate(decoded.records)
    ]
    return row


def record_row(data: bytes) -> Plain:
    """Kind and fields. Raises UnreadableRecordError for what is no record."""
    record = decode(data)
    kind = record.WhichOneof("body")
    if kind is None:
        return {"kind": "unknown: of a newer version", "fields": {}}
    return {"kind": kind, "fields": _fields(getattr(record, kind))}


def _fields(message: Message) -> Plain:
    """Fields without those that are absent or empty lists; ids as people write them, wrapped lists as lists."""
    plain: Plain = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            plain |= {field.name: [_value(each) for each in value]} if value else {}
        elif not field.has_presence or message.HasField(field.name):
            plain[field.name] = _value(value)
    return plain


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        return id_to_text(value) if len(value) == _ID_BYTES else value.hex()
    if isinstance(value, Message):
        inner = _fields(value)
        return inner.get("ids", []) if isinstance(value, pb.Replicas | pb.Directories) else inner
    return value


def _control_rows(batch: RawBatch) -> Iterator[Plain]:
    for record in decode_records(batch.data, batch.header):
        number = control_type_of(record.key)
        kind = ControlType(number) if number in list(ControlType) else None
        fields: Plain = {}
        if kind == ControlType.LEADER_CHANGE and record.value is not None:
            fields["leader_id"] = int.from_bytes(record.value[2:6], "big", signed=True)
        elif kind == ControlType.KRAFT_VERSION and record.value is not None:
            fields["level"] = _level(record.value)
        elif kind == ControlType.KRAFT_VOTERS and record.value is not None:
            fields["voters"] = _voters(record.value)
        name = kind.name.lower() if kind is not None else f"control record {number}"
        yield {"offset": record.offset, "kind": name, "fields": fields}


def _level(value: bytes) -> int | str:
    try:
        return decode_kraft_version(value)
    except KafkaError:
        return "unreadable"


def _voters(value: bytes) -> list[str]:
    try:
        voters = decode_voters(value).voters
    except KafkaError:
        return ["unreadable"]
    return [f"{each.key.id}@{each.endpoint.host}:{each.endpoint.port}" for each in voters]


def record_line(row: Plain) -> str:
    """`batch_row`'s record in one line."""
    fields = " ".join(f"{name}={_short(value)}" for name, value in row["fields"].items())
    return f"{row['offset']:>10}  {row['kind']:<26} {fields}".rstrip()


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_short(each) for each in value) or "none"
    if isinstance(value, dict):
        return "(" + " ".join(f"{name}={_short(each)}" for name, each in value.items()) + ")"
    return str(value)
