"""Between records and bytes, and from an image back to the records that make it."""

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.image import MetadataImage, UnreadableRecordError
from ottla.quorum.metadata.views import BrokerView, ControllerView, EndpointView, FeatureRangeView, PartitionView


def decode(data: bytes) -> pb.MetadataRecord:
    """Raises UnreadableRecordError."""
    try:
        return pb.MetadataRecord.FromString(data)
    except DecodeError as error:
        raise UnreadableRecordError(f"not a metadata record: {data[:64]!r}") from error


def image_records(image: MetadataImage) -> Iterator[pb.MetadataRecord]:
    """Records that turn an empty image into an equal one."""
    for name, level in image.features.items():
        yield pb.MetadataRecord(feature_level=pb.FeatureLevel(name=name, level=level))
    for controller in image.controllers.values():
        yield controller_record(controller)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for topic in image.topics_by_id.values():
        yield pb.MetadataRecord(topic=pb.Topic(name=topic.name, topic_id=topic.id))
        for index, partition in topic.partitions.items():
            yield partition_record(topic.id, index, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield config_record(resource_type, resource_name, name, value)
    if image.next_producer_id:
        ids = pb.ProducerIds(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
        yield pb.MetadataRecord(producer_ids=ids)


def broker_record(broker: BrokerView) -> pb.MetadataRecord:
    """The record that registers the broker as it is."""
    return pb.MetadataRecord(
        register_broker=pb.RegisterBroker(
            broker_id=broker.id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            endpoints=_endpoints(broker.endpoints),
            features=_features(broker.features),
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            directories=broker.directories,
        )
    )


def controller_record(controller: ControllerView) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        register_controller=pb.RegisterController(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id,
            endpoints=_endpoints(controller.endpoints),
            features=_features(controller.features),
            rack=controller.rack,
        )
    )


def partition_record(topic_id: bytes, index: int, partition: PartitionView) -> pb.MetadataRecord:
    """The record that creates the partition as it is."""
    return pb.MetadataRecord(
        partition=pb.Partition(
            topic_id=topic_id,
            partition_id=index,
            replicas=partition.replicas,
            isr=partition.isr,
            removing_replicas=partition.removing,
            adding_replicas=partition.adding,
            leader=partition.leader,
            leader_recovery_state=partition.leader_recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=partition.directories,
        )
    )


def config_record(resource_type: int, resource_name: str, name: str, value: str | None) -> pb.MetadataRecord:
    """Sets a configuration; None removes it."""
    config = pb.Config(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    return pb.MetadataRecord(config=config)


def _endpoints(endpoints: tuple[EndpointView, ...]) -> list[pb.Endpoint]:
    return [
        pb.Endpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in endpoints
    ]


def _features(features: dict[str, FeatureRangeView]) -> list[pb.FeatureRange]:
    return [
        pb.FeatureRange(name=name, min_version=each.min_version, max_version=each.max_version)
        for name, each in features.items()
    ]
