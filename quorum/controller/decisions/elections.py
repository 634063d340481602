"""Leaders elected on request (ElectLeaders), or to get back to the first replicas from time to time."""

from collections.abc import Iterable

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.partition_change import Election
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.views import NO_LEADER, PartitionView, TopicView
from ottla.runtime.errors import ErrorCode, KafkaError

PREFERRED, UNCLEAN = 0, 1

_Result = rpc.ElectLeadersResponse.Partition


def elect_leaders(state: ControllerState, request: rpc.ElectLeadersRequest) -> Decision[rpc.ElectLeadersResponse]:
    """Elects in the named partitions, or in all that need it. Raises KafkaError (INVALID_REQUEST)."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.election_type} is no type of election")
    election = Election.PREFERRED if request.election_type == PREFERRED else Election.UNCLEAN
    response = rpc.ElectLeadersResponse()
    records: list[Record] = []
    for name, partitions in _asked(state, request):
        topic = state.image.topics_by_name.get(name)
        results = [_elect(state, topic, index, election, records) for index in partitions]
        if request.all_partitions:
            results = [each for each in results if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if results:
            response.topics.add(name=name, partitions=results)
    return Decision(response, records, atomic=False)


def _asked(state: ControllerState, request: rpc.ElectLeadersRequest) -> Iterable[tuple[str, Iterable[int]]]:
    if request.all_partitions:
        return [(topic.name, list(topic.partitions)) for topic in state.image.topics_by_id.values()]
    return [(topic.name, topic.partitions) for topic in request.topics]


def _elect(
    state: ControllerState, topic: TopicView | None, index: int, election: Election, records: list[Record]
) -> _Result:
    partition = topic.partitions.get(index) if topic is not None else None
    if topic is None or partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _Result(partition_index=index, error_code=code, error_message="there is no such partition")
    if not _is_needed(partition, election):
        return _Result(partition_index=index, error_code=ErrorCode.ELECTION_NOT_NEEDED)
    record = change_builder(state, (topic.id, index), partition, election=election).build()
    if record is not None:
        records.append(record)
        return _Result(partition_index=index)
    if election is Election.PREFERRED:
        code, message = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "the first replica is not in sync or not running"
    else:
        code, message = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is running"
    return _Result(partition_index=index, error_code=code, error_message=message)


def _is_needed(partition: PartitionView, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER


def rebalance_leaders(state: ControllerState, elections_max: int) -> list[Record]:
    """Back to the first replicas where they are in sync: what auto.leader.rebalance.enable does now and then."""
    records: list[Record] = []
    for key in state.replicas.unpreferred():
        partition = state.image.partition(*key)
        assert partition is not None, "the index follows the image"
        first = partition.replicas[0]
        if first not in partition.isr or not state.can_lead(partition, first):
            continue
        record = change_builder(state, key, partition, election=Election.PREFERRED).build()
        if record is not None:
            records.append(record)
        if len(records) == elections_max:
            break
    return records
