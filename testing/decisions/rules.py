"""What must hold of every partition, of what the controller keeps beside its records, and once all is whole again.

What must hold of the logs is in `promises.py`.
"""

from collections.abc import Container, Mapping

from ottla.quorum.controller.decisions.replica_index import ReplicaIndex
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import NO_LEADER, PartitionView
from ottla.testing.decisions.words import describe_partition

_INDEXES = ("_led", "_leaderless", "_unpreferred", "_first", "_first_unled")


class Violation(AssertionError):
    """Something that must never be."""


def check_change(before: PartitionView, after: PartitionView) -> None:
    """Raises Violation when a partition is not what can be, or did not come of the one before."""
    wrong = [*_wrong_in(after), *_wrong_between(before, after)]
    if wrong:
        raise Violation(f"{'; '.join(wrong)}: {describe_partition(before)} -> {describe_partition(after)}")


def _wrong_in(partition: PartitionView) -> list[str]:
    replicas, isr, elr = partition.replicas, partition.isr, partition.elr
    rules = (
        (_are_among(isr, replicas), "who is in sync is no replica"),
        (_are_among(elr, replicas), "who is eligible is no replica"),
        (not any(each in elr for each in isr), "somebody is in sync and eligible at once"),
        (len(dict.fromkeys(replicas)) == len(replicas), "a replica is named twice"),
        (len(partition.directories) == len(replicas), "not every replica has a directory"),
        (partition.leader == NO_LEADER or partition.leader in isr, "the leader is not in sync"),
        (_are_among(partition.adding, replicas), "who is being added is no replica"),
        (_are_among(partition.removing, replicas), "who is being removed is no replica"),
        (partition.leader == NO_LEADER or not partition.last_known_elr, "who led last is noted though somebody leads"),
    )
    return [sentence for is_kept, sentence in rules if not is_kept]


def _are_among(some: tuple[int, ...], all_of_them: tuple[int, ...]) -> bool:
    return all(each in all_of_them for each in some)


def _wrong_between(before: PartitionView, after: PartitionView) -> list[str]:
    is_elected = after.leader != before.leader
    # Whether a move is over is judged before who leads: an unclean election then leaves its leader alone, as in Kafka.
    is_alone = is_elected and after.isr == (after.leader,)
    arrived = [
        each for each in before.adding if each in after.replicas and each not in (*after.adding, *after.removing)
    ]
    rules = (
        (after.leader_epoch >= before.leader_epoch, "the leader epoch went back"),
        (after.partition_epoch == before.partition_epoch + 1, "the partition epoch is not the next one"),
        (not is_elected or after.leader_epoch == before.leader_epoch + 1, "a new leader has no new epoch"),
        (is_alone or _are_among(tuple(arrived), after.isr), "a move is over and its new replicas are not in sync"),
    )
    return [sentence for is_kept, sentence in rules if not is_kept]


def check_election(before: PartitionView, after: PartitionView, taken_out: Container[int]) -> None:
    """Raises Violation when somebody is elected, or joins, of whom there are pieces left to be taken out: the next would undo it.
    Without a leader who led last may come to be the one in sync (a downgrade): that is no election."""
    if after.leader == NO_LEADER:
        return
    comes = [each for each in after.isr if each not in before.isr]
    comes += [after.leader] if after.leader != before.leader else []
    if any(each in taken_out for each in comes):
        shown = f"{describe_partition(before)} -> {describe_partition(after)}"
        raise Violation(f"{comes} are taken out for good, and come in: {shown}")


def check_broker(image: MetadataImage, broker_id: int) -> None:
    """Raises Violation when a broker that was just fenced, forgotten or registered anew, or said which directories it lost, leads where it
    is not in service, or is in sync where others are."""
    broker = image.brokers.get(broker_id)
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            if partition.leader == NO_LEADER or broker_id not in (*partition.isr, partition.leader):
                continue
            if broker is None or broker.fenced or not broker.has_directory(partition.directory_of(broker_id)):
                raise Violation(
                    f"{broker_id} is out of service, and in the way: P{index} {describe_partition(partition)}"
                )


def check_index(state: ControllerState) -> None:
    """Raises Violation when the replica index is not what a count of the image gives."""
    kept, counted = state.replicas, ReplicaIndex(state.image)
    for index in (kept, counted):
        while not index.count():
            pass
    for name in _INDEXES:
        if getattr(kept, name) != getattr(counted, name):
            raise Violation(f"the replica index has another {name} than the image")
    if _hosting(kept) != _hosting(counted):
        raise Violation("the replica index has other brokers' replicas than the image")


def _hosting(index: ReplicaIndex) -> dict[int, object]:
    return {broker: topics for broker, topics in index._hosted.items() if topics}


def check_image(image: MetadataImage, replayed: MetadataImage) -> None:
    """Raises Violation when the records, read from the first on, say something else than the controller goes by."""
    if image != replayed:
        raise Violation("the image is not what its records say")


def is_settled(partition: PartitionView) -> bool:
    is_moving = partition.adding or partition.removing
    return partition.leader != NO_LEADER and len(partition.isr) == len(partition.replicas) and not is_moving


def is_whole(state: ControllerState) -> bool:
    """Whether everybody is in service and all partitions are what they are to be."""
    brokers, topics = state.image.brokers.values(), state.image.topics_by_id.values()
    return all(each.is_active for each in brokers) and all(
        is_settled(partition) for topic in topics for partition in topic.partitions.values()
    )


def check_settled(state: ControllerState, asked_for: Mapping[PartitionKey, list[tuple[int, ...]]]) -> None:
    """Raises Violation when something stays undone though all brokers and disks are there and all was asked. ``asked_for``: the replicas
    that the partitions which were ever to move may have."""
    for topic in state.image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            if not is_settled(partition):
                what = "nobody leads" if partition.leader == NO_LEADER else "not all are in sync, or a move has no end"
                raise Violation(f"{what} though all is whole again: P{index} {describe_partition(partition)}")
            targets = asked_for.get((topic.id, index), [partition.replicas])
            if sorted(partition.replicas) not in map(sorted, targets):
                raise Violation(f"nobody asked for these replicas: P{index} {describe_partition(partition)}")
    left = (state.half_out, state.going, state.failing, state.leaving, state.returning)
    if any(left):
        raise Violation(f"the controller is not done with brokers though all is whole again: {left}")
