"""Damaged replicas: who finds records of its own that are not what was written leaves the ISR, and the leadership. So does who has
no room for more: another's directory may have some, and nobody has to wait for one that cannot write.

It may then cut its log and fetch it anew. That is safe for one reason: what is granted begins a leader epoch. No fetch of that
epoch was sent before the cut, and the leader takes nobody into the ISR but for a fetch of its own epoch; so the replica cannot
come back with an end offset that it has no more. docs/architecture.md, "A damaged replica".
"""

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.partition_change import Election
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import NO_LEADER, PartitionView
from ottla.runtime.errors import ErrorCode

_Partition = rpc.ReportDamageRequest.Partition


def report_damage(state: ControllerState, request: rpc.ReportDamageRequest) -> Decision[rpc.ReportDamageResponse]:
    """Each partition is judged by itself. Raises KafkaError (STALE_BROKER_EPOCH) for the sender."""
    state.registered(request.broker_id, request.broker_epoch)
    response = rpc.ReportDamageResponse()
    records: list[Record] = []
    for told in request.topics:
        topic = response.topics.add(topic_id=told.topic_id)
        for each in told.partitions:
            error = _leave(state, request.broker_id, told.topic_id, each, records)
            topic.partitions.add(partition_index=each.partition_index, error_code=error)
    return Decision(response, records, atomic=False)


def _leave(state: ControllerState, sender: int, topic_id: bytes, told: _Partition, records: list[Record]) -> ErrorCode:
    key = (topic_id, told.partition_index)
    partition = state.image.partition(*key)
    if partition is None:
        return (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id in state.image.topics_by_id else ErrorCode.UNKNOWN_TOPIC_ID
        )
    if told.leader_epoch != partition.leader_epoch:
        behind = told.leader_epoch < partition.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.NOT_CONTROLLER
    if sender not in partition.replicas:
        return ErrorCode.INVALID_REQUEST
    record = _without(state, key, partition, sender, is_full=told.is_full)
    if record is None:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    records.append(record)
    return ErrorCode.NONE


def _without(
    state: ControllerState, key: PartitionKey, partition: PartitionView, sender: int, *, is_full: bool
) -> Record | None:
    """The partition without the sender in the ISR, in a new epoch; None when nobody else in sync could lead it. One that ``is_full`` has
    lost nothing, and may be eligible."""
    # Never an unclean election: it would take a replica that lacks records over one that has all but the damaged ones.
    builder = change_builder(state, key, partition, leaving=sender, election=Election.ONLINE)
    builder.isr = tuple(each for each in partition.isr if each != sender)
    builder.begins_epoch = True
    if not is_full:
        builder.loser = sender
    record = builder.build() if builder.isr else None
    return record if record is not None and record.partition_change.leader != NO_LEADER else None
