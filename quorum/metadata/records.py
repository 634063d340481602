"""Between records and bytes, and from an image back to the records that make it."""

from google.protobuf.message import DecodeError

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.families.family import UnreadableRecordError
from ottla.quorum.metadata.views import PartitionView

_KAFKAS_FRAME = b"\x01"
"""Kafka's metadata records begin with the version of their frame; in protobuf that is a field 0, which there cannot be."""


def decode(data: bytes) -> pb.MetadataRecord:
    """Raises UnreadableRecordError."""
    try:
        return pb.MetadataRecord.FromString(data)
    except DecodeError as error:
        if data.startswith(_KAFKAS_FRAME):
            raise UnreadableRecordError("a metadata record of Apache Kafka's: ottla log dump prints those") from error
        raise UnreadableRecordError(f"not a metadata record: {data[:64]!r}") from error


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
            eligible_leader_replicas=partition.elr,
            last_known_elr=partition.last_known_elr,
        )
    )
