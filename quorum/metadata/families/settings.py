"""What is set for topics and nodes, the finalized features, and the producer ids that are still free."""

from collections.abc import Iterable, Mapping

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.families.family import (
    Part,
    RecordFamily,
    RecordKind,
    RecordLevel,
    Telling,
    UnreadableRecordError,
    one_record,
)
from ottla.quorum.metadata.views import NEXT_PRODUCER_ID, ConfigKey

# --- features ---------------------------------------------------------------------------------------------------------


def _set_feature(_features: Mapping[str, int], record: pb.FeatureLevel) -> tuple[str, int | None]:
    return record.name, record.level or None


def _feature_record(name: str, level: int) -> pb.MetadataRecord:
    return pb.MetadataRecord(feature_level=pb.FeatureLevel(name=name, level=level))


FEATURES = RecordFamily[str, int](
    attribute="features",
    prefix=b"f",
    kinds={"feature_level": RecordKind(_set_feature, RecordLevel(25, 2))},
    parts=one_record(str.encode, _feature_record),
    path=("features",),
    telling=Telling("feature", lambda name, level: [(name, str(level))], before_topics=True),
)

# --- configurations ---------------------------------------------------------------------------------------------------


def config_record(resource_type: int, resource_name: str, name: str, value: str | None) -> pb.MetadataRecord:
    """Sets a configuration; None removes it."""
    config = pb.Config(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    return pb.MetadataRecord(config=config)


def _set_config(
    configs: Mapping[ConfigKey, dict[str, str]], record: pb.Config
) -> tuple[ConfigKey, dict[str, str] | None]:
    key = (record.resource_type, record.resource_name)
    values = dict(configs.get(key, {}))
    if record.HasField("value"):
        values[record.name] = record.value
    else:
        values.pop(record.name, None)
    return key, values or None


def _config_parts(key: ConfigKey, values: dict[str, str]) -> Iterable[Part]:
    resource_type, resource_name = key
    resource = bytes((resource_type,)) + resource_name.encode() + b"\0"
    for name, value in values.items():
        yield resource + name.encode(), config_record(resource_type, resource_name, name, value)


def _config_lines(key: ConfigKey, values: dict[str, str]) -> Iterable[tuple[str, str]]:
    resource = key[1] or "all brokers"
    return [(f"{resource}: {name}", value) for name, value in values.items()]


CONFIGS = RecordFamily[ConfigKey, dict[str, str]](
    attribute="configs",
    prefix=b"g",
    kinds={"config": RecordKind(_set_config, RecordLevel(25, 4))},
    parts=_config_parts,
    path=("configs",),
    telling=Telling("setting", _config_lines),
)

# --- producer ids -----------------------------------------------------------------------------------------------------


def _hand_out(ids: Mapping[str, int], record: pb.ProducerIds) -> tuple[str, int]:
    if record.next_producer_id <= ids.get(NEXT_PRODUCER_ID, 0):
        raise UnreadableRecordError(f"producer ids from {record.next_producer_id} on are handed out a second time")
    return NEXT_PRODUCER_ID, record.next_producer_id


def _producer_ids_record(_name: str, next_id: int) -> pb.MetadataRecord:
    ids = pb.ProducerIds(broker_id=-1, broker_epoch=-1, next_producer_id=next_id)
    return pb.MetadataRecord(producer_ids=ids)


PRODUCER_IDS = RecordFamily[str, int](
    attribute="producer_ids",
    prefix=b"i",
    kinds={"producer_ids": RecordKind(_hand_out, RecordLevel(25, 3))},
    parts=one_record(lambda _name: b"", _producer_ids_record),  # there is one entry
    path=("producerIds",),
)
