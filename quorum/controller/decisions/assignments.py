"""Replicas of new partitions: placed by the controller or given by hand."""

from collections.abc import Iterable, Sequence

from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.placement import UsableBroker, place
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.places import Standing, places
from ottla.quorum.metadata.records import partition_record
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError


def placed(state: ControllerState, partitions: int, replication_factor: int) -> list[list[int]]:
    """Assignments chosen by the placer. Raises KafkaError (INVALID_REPLICATION_FACTOR)."""
    return place(state.rng, _usable(state), partitions, replication_factor)


def _usable(state: ControllerState) -> Iterable[UsableBroker]:
    brokers = state.image.brokers.values()
    place_of = places(Standing(each.id, each.rack, each.host) for each in brokers)
    for broker in brokers:
        if not broker.is_leaving:
            yield UsableBroker(broker.id, place_of[broker.id], broker.fenced)


def check_by_hand(state: ControllerState, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raises KafkaError (INVALID_REPLICA_ASSIGNMENT) for an assignment that cannot be."""
    if not replicas:
        raise _impossible("an assignment names no brokers")
    if len(dict.fromkeys(replicas)) != len(replicas):
        raise _impossible(f"the assignment {list(replicas)} names a broker twice")
    unknown = [each for each in replicas if each not in state.image.brokers]
    if unknown:
        raise _impossible(f"the assignment {list(replicas)} names the broker {unknown[0]}, which is not registered")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _impossible(f"the assignment {list(replicas)} has not {replication_factor} replicas as the others have")


def new_partitions(
    state: ControllerState, topic_id: bytes, first_index: int, assignments: Iterable[Sequence[int]]
) -> list[Record]:
    """Partitions whose active replicas are in sync, led by the first of them. Raises KafkaError
    (INVALID_REPLICA_ASSIGNMENT) where there is none."""
    models: dict[tuple[int, ...], Record] = {}  # by replicas: what ten thousand partitions have in common is made once
    records = []
    for index, replicas in enumerate(map(tuple, assignments), first_index):
        model = models.get(replicas)
        if model is None:
            model = models[replicas] = _new_partition(state, topic_id, replicas)
        record = Record()
        record.CopyFrom(model)
        record.partition.partition_id = index
        records.append(record)
    return records


def _new_partition(state: ControllerState, topic_id: bytes, replicas: tuple[int, ...]) -> Record:
    """Partition 0."""
    isr = tuple(each for each in replicas if state.is_active(each))
    if not isr:
        raise _impossible(f"all brokers of the assignment {list(replicas)} are fenced or shutting down")
    directories = tuple(state.directory_for_new_replica(each) for each in replicas)
    view = PartitionView(replicas, isr, leader=isr[0], leader_epoch=0, partition_epoch=0, directories=directories)
    return partition_record(topic_id, 0, view)


def _impossible(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
