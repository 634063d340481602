"""AssignReplicasToDirs (KIP-858): a broker tells in which of its directories it keeps which replicas."""

from msgspec import structs

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import NO_ERROR, Decision, Record
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import DIRECTORY_LOST, DIRECTORY_NOT_MADE, BrokerView, PartitionView
from ottla.runtime.errors import ErrorCode

_Result = rpc.AssignReplicasToDirectoriesResponse.Partition


def assign_replicas(
    state: ControllerState, request: rpc.AssignReplicasToDirectoriesRequest
) -> Decision[rpc.AssignReplicasToDirectoriesResponse]:
    """Each partition is judged by itself. Raises KafkaError (STALE_BROKER_EPOCH) for the sender."""
    broker = state.registered(request.broker_id, request.broker_epoch)
    response = rpc.AssignReplicasToDirectoriesResponse()
    records: list[Record] = []
    for asked in request.directories:
        directory = response.directories.add(id=asked.id)
        for each in asked.topics:
            topic = directory.topics.add(topic_id=each.topic_id)
            earlier = {moved.partition_index: [*moved.earlier_directories] for moved in each.moved}
            for index in each.partitions:
                error = _assign(state, broker, asked.id, (each.topic_id, index), earlier.get(index, []), records)
                topic.partitions.append(_Result(partition_index=index, error_code=error))
    return Decision(response, records, atomic=False)


def _assign(
    state: ControllerState,
    broker: BrokerView,
    directory: bytes,
    key: PartitionKey,
    earlier: list[bytes],
    records: list[Record],
) -> int:
    topic_id, index = key
    if topic_id not in state.image.topics_by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = state.image.partition(topic_id, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if len(directory) != 16:
        return ErrorCode.INVALID_REQUEST
    was_moved = partition.directory_of(broker.id) in (*earlier, DIRECTORY_NOT_MADE)
    record = _move(state, broker, directory, key, partition, was_moved=was_moved)
    if record is not None:
        records.append(record)
    return NO_ERROR


def _move(
    state: ControllerState,
    broker: BrokerView,
    directory: bytes,
    key: PartitionKey,
    partition: PartitionView,
    *,
    was_moved: bool,
) -> Record | None:
    """``was_moved``: all that the replica had in the directory that we know it in, it took along; also where that was nothing."""
    directories = tuple(directory if each == broker.id else partition.directory_of(each) for each in partition.replicas)
    if directories == partition.directories:
        return None
    moved = structs.replace(partition, directories=directories)
    builder = change_builder(state, key, moved)
    if not broker.has_directory(partition.directory_of(broker.id)) and not was_moved:
        # What it had was in a directory that is gone: the replica was made anew, and holds nothing that anybody relied on.
        builder.loser = builder.emptied = broker.id
        others = tuple(each for each in partition.isr if each != broker.id)
        is_known = broker.id in partition.isr or broker.id in partition.last_known_elr
        if others or any(each != broker.id for each in partition.elr):
            builder.isr = others
        elif is_known and len(partition.replicas) > 1:
            return None  # as the last in sync it would lead, and the others would cut what they have: a person may say who does
    if not broker.has_directory(directory):
        builder.loser = broker.id
        if directory == DIRECTORY_LOST:
            builder.emptied = broker.id  # it is in no directory, and none will come back with it
        # Else it failed before its broker could tell what was in it: the replica is lost, as others of that directory are.
        builder.isr = tuple(each for each in partition.isr if each != broker.id)
    record = builder.build() or Record(partition_change=pb.PartitionChange(topic_id=key[0], partition_id=key[1]))
    if not record.partition_change.HasField("directories"):
        record.partition_change.directories.ids.extend(directories)
    return record
