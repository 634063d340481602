"""Leaders elected on request (ElectLeaders), or to get back to the first replicas from time to time."""

from collections.abc import Iterable

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.partition_change import Election
from ottla.quorum.controller.decisions.partitions import change_builder, sweep_step
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import Step
from ottla.quorum.metadata.delta import PartitionKey
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
    if request.all_partitions and not state.replicas.count():
        return Decision(response, is_last=False)
    records: list[Record] = []
    for name, partitions in _asked(state, request, preferred=election is Election.PREFERRED):
        topic = state.image.topics_by_name.get(name)
        results = [_elect(state, topic, index, election, records) for index in partitions]
        if request.all_partitions:
            results = [each for each in results if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if results:
            response.topics.add(name=name, partitions=results)
    return Decision(response, records, atomic=False)


def _asked(
    state: ControllerState, request: rpc.ElectLeadersRequest, *, preferred: bool
) -> Iterable[tuple[str, Iterable[int]]]:
    if request.all_partitions:
        needy = state.replicas.unpreferred_topics() if preferred else state.replicas.leaderless_topics()
        return [(topic.name, list(topic.partitions)) for topic in map(state.image.topics_by_id.__getitem__, needy)]
    named: dict[str, dict[int, None]] = {}  # each once: a second election would cost a leader epoch more
    for asked in request.topics:
        named.setdefault(asked.name, {}).update(dict.fromkeys(asked.partitions))
    return list(named.items())


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


def rebalance_leaders(state: ControllerState) -> Step:
    """Back to the first replicas where they are in sync, piece by piece: what auto.leader.rebalance.enable does now and
    then."""

    def concerns(partition: PartitionView) -> bool:
        first = partition.replicas[0]
        return partition.leader != first and first in partition.isr

    def change(key: PartitionKey, partition: PartitionView) -> Record | None:
        if not state.can_lead(partition, partition.replicas[0]):
            return None
        return change_builder(state, key, partition, election=Election.PREFERRED).build()

    topics = state.replicas.unpreferred_topics
    return sweep_step(state, "rebalance leaders", topics, concerns, change)
