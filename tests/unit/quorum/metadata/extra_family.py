"""A record family that the product does not have, made as a new one would be: its messages, and a row."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.families.family import Part, RecordFamily, RecordKind, RecordLevel, Telling
from ottla.quorum.metadata.families.table import FAMILIES, KINDS

Quota = dict[str, float]
LEVEL = 31
_FIELD = descriptor_pb2.FieldDescriptorProto


def quota_record(user: str, name: str, value: float | None) -> pb.MetadataRecord:
    """Sets one of a user's quotas; None removes it."""
    record: Any = pb.MetadataRecord()
    record.client_quota.user, record.client_quota.name = user, name
    if value is not None:
        record.client_quota.value = value
    return record  # type: ignore[no-any-return]  # the generated class knows no quotas


def _set(quotas: Mapping[str, Quota], record: Any) -> tuple[str, Quota | None]:
    values = {name: value for name, value in quotas.get(record.user, {}).items() if name != record.name}
    if record.HasField("value"):
        values[record.name] = record.value
    return record.user, values or None


def _parts(user: str, values: Quota) -> Iterable[Part]:
    return [(f"{user}\0{name}".encode(), quota_record(user, name, value)) for name, value in values.items()]


QUOTAS = RecordFamily[str, Quota](
    attribute="quotas",
    prefix=b"q",
    kinds={"client_quota": RecordKind(_set, RecordLevel(LEVEL, 3))},
    parts=_parts,
    path=("clientQuotas", "users"),
    telling=Telling("quota", lambda user, values: [(f"{user}: {name}", f"{each:g}") for name, each in values.items()]),
)


def add_quotas(patch: pytest.MonkeyPatch) -> None:
    """All that there is to do for a new family: its messages, its row."""
    for name, message in _messages().items():
        patch.setattr(pb, name, message, raising=False)
    patch.setitem(FAMILIES, QUOTAS.attribute, QUOTAS)
    for kind in QUOTAS.kinds:
        patch.setitem(KINDS, kind, (QUOTAS, QUOTAS.kinds[kind]))


def _messages() -> dict[str, Any]:
    """The classes of metadata.proto as they would be with a ClientQuota in it."""
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    quota = file.message_type.add(name="ClientQuota")
    quota.field.add(name="user", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    quota.field.add(name="name", number=2, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    value = quota.field.add(name="value", number=3, type=_FIELD.TYPE_DOUBLE, label=_FIELD.LABEL_OPTIONAL)
    value.proto3_optional, value.oneof_index = True, 0
    quota.oneof_decl.add(name="_value")
    record = next(each for each in file.message_type if each.name == "MetadataRecord")
    record.field.add(
        name="client_quota",
        number=99,
        type=_FIELD.TYPE_MESSAGE,
        label=_FIELD.LABEL_OPTIONAL,
        type_name=f".{file.package}.ClientQuota",
        oneof_index=0,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        each.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{each.name}"))
        for each in file.message_type
    }
