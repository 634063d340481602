"""Leaders elected on request (ElectLeaders), or to get back to the first replicas from time to time."""

from collections.abc import Iterable, Iterator

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.decision import Decision, Record
from ottla.quorum.controller.decisions.partition_change import Election
from ottla.quorum.controller.decisions.partitions import change_builder, sweep_step
from ottla.quorum.controller.decisions.pieces import Progress, next_piece
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import Step
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import NO_LEADER, PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError

PREFERRED, UNCLEAN = 0, 1

_Result = rpc.ElectLeadersResponse.Partition
_Elections = Progress[tuple[str, int], rpc.ElectLeadersResponse]
_NAME_TOLD_MAX = 30


def elect_leaders(state: ControllerState, request: rpc.ElectLeadersRequest) -> Decision[rpc.ElectLeadersResponse]:
    """Elects in the named partitions, or in all that need it. Raises KafkaError (INVALID_REQUEST)."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.election_type} is no type of election")
    election = Election.PREFERRED if request.election_type == PREFERRED else Election.UNCLEAN
    if request.all_partitions and not state.replicas.count():
        return Decision(rpc.ElectLeadersResponse(), is_last=False)

    def begin() -> _Elections:
        asked = _needy(state, election) if request.all_partitions else _named(request)
        return Progress(iter(asked), rpc.ElectLeadersResponse())

    def decide(progress: _Elections, asked: tuple[str, int]) -> Record | None:
        name, index = asked
        result, record = _elect(state, name, index, election)
        if not request.all_partitions or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            progress.results_of(name).append(result)
        return record

    return next_piece(state, request, begin, decide)


def _needy(state: ControllerState, election: Election) -> Iterator[tuple[str, int]]:
    """The partitions of the topics in which some need the election."""
    is_preferred = election is Election.PREFERRED
    topics = state.replicas.unpreferred_topics() if is_preferred else state.replicas.leaderless_topics()
    for topic_id in list(topics):
        topic = state.image.topics_by_id.get(topic_id)
        if topic is not None:
            yield from [(topic.name, index) for index in topic.partitions]


def _named(request: rpc.ElectLeadersRequest) -> Iterable[tuple[str, int]]:
    """The partitions that are named, each once: a second election would cost a leader epoch more."""
    return dict.fromkeys((topic.name, index) for topic in request.topics for index in topic.partitions)


def _told(what: str, name: str) -> str:
    """In Kafka's words, but not with a long name: the answer has it already, for half a million partitions it may be."""
    return f"{what} as {name}" if len(name) <= _NAME_TOLD_MAX else what


def _elect(state: ControllerState, name: str, index: int, election: Election) -> tuple[_Result, Record | None]:
    topic = state.image.topics_by_name.get(name)
    partition = topic.partitions.get(index) if topic is not None else None
    if topic is None or partition is None:
        missing = _told("No such topic", name) if topic is None else _told("No such partition", f"{name}-{index}")
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _Result(partition_index=index, error_code=code, error_message=missing), None
    if not _is_needed(partition, election):
        return _Result(partition_index=index, error_code=ErrorCode.ELECTION_NOT_NEEDED), None
    record = change_builder(state, (topic.id, index), partition, election=election).build()
    if record is not None:
        return _Result(partition_index=index), record
    if election is Election.PREFERRED:
        code, message = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "the first replica is not in sync or not running"
    else:
        code, message = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is running"
    return _Result(partition_index=index, error_code=code, error_message=message), None


def _is_needed(partition: PartitionView, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER


def rebalance_leaders(state: ControllerState) -> Step:
    """Back to the first replicas where they are in sync, piece by piece: what auto.leader.rebalance.enable does now and
    then. Who has most of its leaderships is left alone (leader.imbalance.per.broker.percentage), as it was when the sweep began."""
    if not state.replicas.count():
        return Step([], is_last=False)
    imbalanced = state.replicas.imbalanced_brokers(state.settings.imbalance_percentage)

    def concerns(partition: PartitionView) -> bool:
        first = partition.replicas[0]
        return partition.leader != first and first in imbalanced and first in partition.isr

    def change(key: PartitionKey, partition: PartitionView) -> Record | None:
        if not state.can_lead(partition, partition.replicas[0]):
            return None
        return change_builder(state, key, partition, election=Election.PREFERRED).build()

    topics = state.replicas.unpreferred_topics
    return sweep_step(state, "rebalance leaders", topics, concerns, change)
