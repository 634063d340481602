"""Replicas move: begun and given up here, completed in whatever changes the partition next (`partition_change`).

Source: kraft.md 2.7. While a reassignment runs, the replicas are the new list followed by those that will go.
"""

from collections.abc import Iterable, Iterator

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.assignments import check_by_hand
from ottla.quorum.controller.decisions.decision import Decision, Record, code_and_message
from ottla.quorum.controller.decisions.partition_change import Election
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.pieces import Progress, next_piece
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError

_Asked = rpc.AlterPartitionReassignmentsRequest.Partition
_Moving = tuple[str, int] | None
"""A partition that moves; None: some that do not were looked at."""
_Listing = Progress[_Moving, rpc.ListPartitionReassignmentsResponse]
_Moves = Progress[tuple[str, _Asked], rpc.AlterPartitionReassignmentsResponse]

QUIET_MAX = 20
"""Partitions that do not move are looked at as quickly as so many fewer that do are told of."""


def alter_partition_reassignments(
    state: ControllerState, request: rpc.AlterPartitionReassignmentsRequest
) -> Decision[rpc.AlterPartitionReassignmentsResponse]:
    """Each partition is judged by itself."""

    def begin() -> _Moves:
        asked = ((topic.name, each) for topic in request.topics for each in topic.partitions)
        return Progress(asked, rpc.AlterPartitionReassignmentsResponse())

    def decide(progress: _Moves, asked: tuple[str, _Asked]) -> Record | None:
        name, partition = asked
        result = progress.results_of(name).add(partition_index=partition.partition_index)
        try:
            if not progress.is_first((name, partition.partition_index)):  # each is decided on the state of before
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this partition more than once")
            return _alter(state, name, partition, request.allow_replication_factor_change)
        except KafkaError as error:
            result.error_code, result.error_message = code_and_message(error)
            return None

    return next_piece(state, request, begin, decide)


def list_partition_reassignments(
    state: ControllerState, request: rpc.ListPartitionReassignmentsRequest
) -> Decision[rpc.ListPartitionReassignmentsResponse]:
    """What is under way, of what was asked for; what is not there has no reassignment. It is told once all that was decided before is
    committed, so whoever was told that a reassignment began finds it here."""

    def begin() -> _Listing:
        return Progress(_moving(state, _named(state, request)), rpc.ListPartitionReassignmentsResponse())

    def tell(progress: _Listing, found: _Moving) -> None:
        if found is None or not progress.is_first(found):
            return
        name, index = found
        view = state.image.topics_by_name[name].partitions[index]
        progress.results_of(name).add(
            partition_index=index, replicas=view.replicas, adding=view.adding, removing=view.removing
        )

    return next_piece(state, request, begin, tell)


def _named(state: ControllerState, request: rpc.ListPartitionReassignmentsRequest) -> Iterator[tuple[str, int]]:
    """What is asked about; it may change, and go, from piece to piece."""
    if not request.all_partitions:
        yield from ((topic.name, index) for topic in request.topics for index in topic.partitions)
        return
    for name in list(state.image.topics_by_name):
        topic = state.image.topics_by_name.get(name)
        yield from ((name, index) for index in (list(topic.partitions) if topic is not None else ()))


def _moving(state: ControllerState, named: Iterable[tuple[str, int]]) -> Iterator[_Moving]:
    for looks, (name, index) in enumerate(named, 1):
        topic = state.image.topics_by_name.get(name)
        view = topic.partitions.get(index) if topic is not None else None
        if view is not None and (view.adding or view.removing):
            yield name, index
        elif not looks % QUIET_MAX:
            yield None


def _alter(state: ControllerState, name: str, asked: _Asked, factor_may_change: bool) -> Record | None:
    topic = state.image.topics_by_name.get(name)
    partition = topic.partitions.get(asked.partition_index) if topic is not None else None
    if topic is None or partition is None:
        # Without the name, which may be long: the answer has it once, for hundreds of thousands of partitions.
        missing = "there is no such topic" if topic is None else "the topic has no such partition"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)
    key = (topic.id, asked.partition_index)
    if asked.cancel:
        return _cancel(state, key, partition)
    target = tuple(asked.replicas)
    check_by_hand(state, target, None)
    settled = [each for each in partition.replicas if each not in partition.adding]
    if not factor_may_change and len(target) != len(settled):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(settled)} to {len(target)}",
        )
    return _begin(state, key, partition, target)


def _begin(
    state: ControllerState, key: PartitionKey, partition: PartitionView, target: tuple[int, ...]
) -> Record | None:
    """Nobody is elected uncleanly for that, as in Kafka: all of the old may be back in a moment, and a new one has nothing yet."""
    builder = change_builder(state, key, partition, election=Election.ONLINE)
    given_up = _given_up(partition, target)
    builder.isr = tuple(each for each in partition.isr if each not in given_up)
    removing = tuple(sorted(each for each in partition.replicas if each not in (*target, *given_up)))
    is_new = [each for each in target if each not in partition.replicas or each in partition.adding]
    builder.replicas = (*target, *removing)
    builder.removing, builder.adding = removing, tuple(sorted(is_new))
    return builder.build()


def _given_up(partition: PartitionView, target: tuple[int, ...]) -> tuple[int, ...]:
    """Who was coming, and is not of the new target, goes at once: who gives that up too must not find it among the replicas
    (in Kafka it stays). Unless nobody else is in sync: then it goes as those do that were there before."""
    given_up = tuple(each for each in partition.adding if each not in target)
    return given_up if any(each not in given_up for each in partition.isr) else ()


def _cancel(state: ControllerState, key: PartitionKey, partition: PartitionView) -> Record | None:
    if not partition.adding and not partition.removing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is under way")
    staying = tuple(each for each in partition.replicas if each not in partition.adding)
    isr = tuple(each for each in partition.isr if each in staying)
    election = None
    if not isr:
        if not state.allows_unclean_election(key[0]):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "none of the old replicas is in sync: giving up would lose records",
            )
        election = Election.UNCLEAN
        if not any(state.can_lead(partition, each) or each in partition.elr for each in staying):
            isr = staying[:1]  # as in Kafka: whoever is named leads when it is back, and a replica that goes is not
    builder = change_builder(state, key, partition, election=election)
    builder.replicas, builder.isr, builder.adding, builder.removing = staying, isr, (), ()
    return builder.build()
