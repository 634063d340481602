"""AlterPartition: a leader tells who is in sync; the controller decides (kraft.md 2.6, checks in that order)."""

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.elr import min_in_sync
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.image import changed_partition
from ottla.quorum.metadata.views import RECOVERED, RECOVERING, PartitionView
from ottla.runtime.errors import ErrorCode

_Partition = rpc.AlterPartitionRequest.Partition
_Result = rpc.AlterPartitionResponse.Partition


def alter_partition(state: ControllerState, request: rpc.AlterPartitionRequest) -> Decision[rpc.AlterPartitionResponse]:
    """Each partition is judged by itself. Raises KafkaError (STALE_BROKER_EPOCH) for the sender."""
    state.registered(request.broker_id, request.broker_epoch)
    response = rpc.AlterPartitionResponse()
    records: list[Record] = []
    for asked in request.topics:
        topic = response.topics.add(topic_id=asked.topic_id)
        for each in asked.partitions:
            topic.partitions.append(_alter(state, request.broker_id, asked.topic_id, each, records))
    # Partitions are independent of each other, so a batch boundary between them harms nobody.
    return Decision(response, records, atomic=False)


def _alter(state: ControllerState, sender: int, topic_id: bytes, asked: _Partition, records: list[Record]) -> _Result:
    index = asked.partition_index
    if topic_id not in state.image.topics_by_id:
        return _Result(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    partition = state.image.partition(topic_id, index)
    if partition is None:
        return _Result(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = _refusal(state, sender, partition, asked)
    if error is not None:
        return _Result(partition_index=index, error_code=error)
    builder = change_builder(state, (topic_id, index), partition)
    builder.isr = tuple(member.broker_id for member in asked.new_isr)
    builder.leader_recovery_state = asked.leader_recovery_state
    record = builder.build()
    if record is not None:
        records.append(record)
        partition = changed_partition(partition, record.partition_change)
    if partition.leader != sender:
        # The change is made all the same: it completed a reassignment that takes the leader away.
        return _Result(partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED)
    return _Result(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
        min_in_sync=min_in_sync(state, topic_id) or 0,
    )


def _refusal(state: ControllerState, sender: int, partition: PartitionView, asked: _Partition) -> ErrorCode | None:
    # Epochs from the future: it is this controller that is behind.
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if asked.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if asked.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [member.broker_id for member in asked.new_isr]
    if not _is_possible_isr(isr, partition) or not _is_possible_recovery(asked, isr, partition):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(state, partition, member) for member in asked.new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _is_possible_isr(isr: list[int], partition: PartitionView) -> bool:
    if not isr or len(dict.fromkeys(isr)) != len(isr):
        return False
    return all(each in partition.replicas for each in isr) and partition.leader in isr


def _is_possible_recovery(asked: _Partition, isr: list[int], partition: PartitionView) -> bool:
    if asked.leader_recovery_state not in (RECOVERED, RECOVERING):
        return False
    if asked.leader_recovery_state == RECOVERING:
        return len(isr) == 1 and partition.leader_recovery_state == RECOVERING
    return True


def _is_eligible(state: ControllerState, partition: PartitionView, member: rpc.AlterPartitionRequest.Member) -> bool:
    broker = state.image.brokers.get(member.broker_id)
    if broker is None or not broker.is_active:
        return False
    may_join = state.is_staying(member.broker_id) and state.has_replica_online(partition, broker)
    if member.broker_id not in partition.isr and not may_join:
        return False  # it was in sync a moment ago, as its leader still believes; then it was taken out for good, or its directory was lost
    return member.broker_epoch in (-1, broker.epoch)
