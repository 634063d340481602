"""Brokers and controllers: who registered, and with what."""

import struct
from collections.abc import Iterable, Mapping

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.families.family import (
    RecordFamily,
    RecordKind,
    RecordLevel,
    Telling,
    UnreadableRecordError,
    one_record,
)
from ottla.quorum.metadata.views import BrokerView, ControllerView, EndpointView, FeatureRangeView

_encode_id = struct.Struct(">i").pack

Brokers = Mapping[int, BrokerView]
Controllers = Mapping[int, ControllerView]

# --- brokers ----------------------------------------------------------------------------------------------------------


def _register_broker(_brokers: Brokers, record: pb.RegisterBroker) -> tuple[int, BrokerView]:
    return record.broker_id, BrokerView(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=_endpoints(record.endpoints),
        features=_features(record.features),
        rack=record.rack if record.HasField("rack") else None,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.directories),
    )


def _unregister_broker(brokers: Brokers, record: pb.UnregisterBroker) -> tuple[int, None]:
    return _registered(brokers, record.broker_id, record.broker_epoch).id, None


def _change_registration(brokers: Brokers, record: pb.BrokerRegistrationChange) -> tuple[int, BrokerView]:
    old = _registered(brokers, record.broker_id, record.broker_epoch)
    shutdown = record.in_controlled_shutdown if record.HasField("in_controlled_shutdown") else None
    return old.id, BrokerView(
        id=old.id,
        epoch=old.epoch,
        incarnation_id=old.incarnation_id,
        endpoints=old.endpoints,
        features=old.features,
        rack=old.rack,
        fenced=record.fenced if record.HasField("fenced") else old.fenced,
        in_controlled_shutdown=old.in_controlled_shutdown if shutdown is None else shutdown,
        directories=tuple(record.directories.ids) if record.HasField("directories") else old.directories,
    )


def _registered(brokers: Brokers, broker_id: int, epoch: int) -> BrokerView:
    broker = brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise UnreadableRecordError(f"a record for broker {broker_id} with epoch {epoch}, which is not registered")
    return broker


def _broker_record(_broker_id: int, broker: BrokerView) -> pb.MetadataRecord:
    """The record that registers the broker as it is."""
    return pb.MetadataRecord(
        register_broker=pb.RegisterBroker(
            broker_id=broker.id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            endpoints=_endpoints_to_proto(broker.endpoints),
            features=_features_to_proto(broker.features),
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            directories=broker.directories,
        )
    )


BROKERS = RecordFamily[int, BrokerView](
    attribute="brokers",
    prefix=b"b",
    kinds={
        "register_broker": RecordKind(_register_broker, RecordLevel(25, 9)),
        "unregister_broker": RecordKind(_unregister_broker, RecordLevel(25, 2)),
        "broker_registration_change": RecordKind(_change_registration, RecordLevel(25, 5)),
    },
    parts=one_record(_encode_id, _broker_record),
    path=("cluster", "brokers"),
    telling=Telling(
        "broker", lambda key, broker: [(str(key), f"epoch {broker.epoch}, {broker.standing}")], before_topics=True
    ),
)

# --- controllers ------------------------------------------------------------------------------------------------------


def _register_controller(_controllers: Controllers, record: pb.RegisterController) -> tuple[int, ControllerView]:
    return record.controller_id, ControllerView(
        record.controller_id,
        record.incarnation_id,
        _endpoints(record.endpoints),
        _features(record.features),
        record.rack if record.HasField("rack") else None,
    )


def _unregister_controller(controllers: Controllers, record: pb.UnregisterController) -> tuple[int, None]:
    if record.controller_id not in controllers:
        raise UnreadableRecordError(f"controller {record.controller_id} leaves, which is not registered")
    return record.controller_id, None


def _controller_record(_controller_id: int, controller: ControllerView) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        register_controller=pb.RegisterController(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id,
            endpoints=_endpoints_to_proto(controller.endpoints),
            features=_features_to_proto(controller.features),
            rack=controller.rack,
        )
    )


CONTROLLERS = RecordFamily[int, ControllerView](
    attribute="controllers",
    prefix=b"c",
    kinds={
        "register_controller": RecordKind(_register_controller, RecordLevel(25, 5)),
        "unregister_controller": RecordKind(_unregister_controller, RecordLevel(25, 1)),
    },
    parts=one_record(_encode_id, _controller_record),
    path=("cluster", "controllers"),
)

# --- what both tell ---------------------------------------------------------------------------------------------------


def _endpoints(endpoints: Iterable[pb.Endpoint]) -> tuple[EndpointView, ...]:
    return tuple(EndpointView(each.name, each.host, each.port, each.security_protocol) for each in endpoints)


def _features(features: Iterable[pb.FeatureRange]) -> dict[str, FeatureRangeView]:
    return {each.name: FeatureRangeView(each.min_version, each.max_version) for each in features}


def _endpoints_to_proto(endpoints: tuple[EndpointView, ...]) -> list[pb.Endpoint]:
    return [
        pb.Endpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in endpoints
    ]


def _features_to_proto(features: dict[str, FeatureRangeView]) -> list[pb.FeatureRange]:
    return [
        pb.FeatureRange(name=name, min_version=each.min_version, max_version=each.max_version)
        for name, each in features.items()
    ]
