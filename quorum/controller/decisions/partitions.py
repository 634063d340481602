"""What happens to partitions when a broker comes, goes or is about to."""

from collections.abc import Callable, Hashable, Iterable

from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.elr import min_in_sync
from ottla.quorum.controller.decisions.partition_change import NOBODY, Election, PartitionChangeBuilder
from ottla.quorum.controller.decisions.state import LEADERLESS_SWEEP, ControllerState
from ottla.quorum.controller.decisions.sweep import CHANGES_MAX, Change, Concerns, Step
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import NO_LEADER, PartitionView


def change_builder(
    state: ControllerState,
    key: PartitionKey,
    partition: PartitionView,
    *,
    leaving: int = NOBODY,
    coming: int = NOBODY,
    election: Election | None = None,
) -> PartitionChangeBuilder:
    """A builder for one partition. ``leaving`` may not lead and ``coming`` may, whatever their registrations still say."""

    def can_lead(broker_id: int) -> bool:
        if broker_id == coming:
            return state.has_replica_online(partition, state.image.brokers[broker_id])
        return broker_id != leaving and state.can_lead(partition, broker_id)

    if election is None:
        election = Election.UNCLEAN if state.allows_unclean_election(key[0]) else Election.ONLINE
    minimum = min_in_sync(state, key[0])
    return PartitionChangeBuilder(key, partition, can_lead, state.directory_for_new_replica, election, minimum)


def take_out(state: ControllerState, broker_id: int, changes_max: int = CHANGES_MAX) -> Step:
    """Removes a broker from every ISR and finds other leaders, piece by piece: it is to be fenced, shuts down or is
    unregistered. A fenced one has been taken out, and nobody takes it in again. What follows the last piece is that it is out of
    service; when it is spared instead, `ControllerState.spare` has to be told."""
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Step([], is_last=True)
    step = _leave(state, broker_id, ("take out", broker_id), lambda _: True, changes_max)
    if not step.is_last:
        state.half_out.add(broker_id)
    return step


def write_off(state: ControllerState, broker_id: int) -> Step:
    """`take_out` of a broker that lost what it had, or may have: it did not stop in order, or will not come back. It is no
    eligible leader any more either, though it was fenced long ago; nor in sync, where it was eligible before a downgrade."""
    step = _leave(state, broker_id, ("write off", broker_id), lambda _: True, CHANGES_MAX, loses=True)
    broker = state.image.brokers.get(broker_id)
    if not step.is_last and broker is not None and not broker.fenced:
        state.half_out.add(broker_id)
    return step


def lose_directories(state: ControllerState, broker_id: int, lost: tuple[bytes, ...]) -> Step:
    """Takes a broker out of the partitions whose replica is in a directory that it cannot read any more."""

    def is_lost(partition: PartitionView) -> bool:
        return partition.directory_of(broker_id) in lost

    return _leave(state, broker_id, ("lose directories", broker_id, lost), is_lost, CHANGES_MAX, loses=True)


def _leave(
    state: ControllerState,
    broker_id: int,
    name: Hashable,
    is_meant: Callable[[PartitionView], bool],
    changes_max: int,
    *,
    loses: bool = False,
) -> Step:
    """``loses``: also what makes it eligible to lead again."""

    def concerns(partition: PartitionView) -> bool:
        is_there = broker_id in partition.isr or broker_id == partition.leader
        return (is_there or (loses and broker_id in partition.elr)) and is_meant(partition)

    def change(key: PartitionKey, partition: PartitionView) -> Record | None:
        builder = change_builder(state, key, partition, leaving=broker_id)
        builder.loser = broker_id if loses else NOBODY
        builder.isr = tuple(each for each in partition.isr if each != broker_id)
        return builder.build()

    return sweep_step(state, name, lambda: state.replicas.topics_of(broker_id), concerns, change, changes_max)


def bring_back(state: ControllerState, broker_id: int) -> Step:
    """Lets a broker that is being unfenced lead the partitions that have nobody and that it is in sync with. What is not
    done with the first piece, `lead_the_leaderless` does."""

    def concerns(partition: PartitionView) -> bool:
        return partition.leader == NO_LEADER and broker_id in partition.replicas

    def change(key: PartitionKey, partition: PartitionView) -> Record | None:
        return change_builder(state, key, partition, coming=broker_id).build()

    name = ("bring back", broker_id)
    step = sweep_step(state, name, state.replicas.leaderless_topics, concerns, change)
    state.replicas.end(name)
    return step


def lead_the_leaderless(state: ControllerState, broker_ids: tuple[int, ...]) -> Step:
    """Finds leaders for partitions that have none, now that these brokers are in service."""

    def concerns(partition: PartitionView) -> bool:
        return partition.leader == NO_LEADER and any(each in partition.replicas for each in broker_ids)

    def change(key: PartitionKey, partition: PartitionView) -> Record | None:
        return change_builder(state, key, partition).build()

    name = ("lead the leaderless", broker_ids)
    return sweep_step(state, name, state.replicas.leaderless_topics, concerns, change)


def lead_uncleanly(state: ControllerState) -> Step:
    """Finds leaders for partitions that have none, where any live replica may lead: that may be allowed only now."""

    def concerns(partition: PartitionView) -> bool:
        return partition.leader == NO_LEADER

    def change(key: PartitionKey, partition: PartitionView) -> Record | None:
        return change_builder(state, key, partition).build() if state.allows_unclean_election(key[0]) else None

    return sweep_step(state, LEADERLESS_SWEEP, state.replicas.leaderless_topics, concerns, change)


def sweep_step(
    state: ControllerState,
    name: Hashable,
    topics: Callable[[], Iterable[bytes]],
    concerns: Concerns,
    change: Change,
    changes_max: int = CHANGES_MAX,
) -> Step:
    """The next piece of the sweep of that name, The first pieces only count, if need be."""
    if not state.replicas.count():
        return Step([], is_last=False)
    sweep = state.replicas.sweep(name, topics, concerns)
    step = sweep.step(change, changes_max)
    if step.is_last:
        state.replicas.end(name)
    return step
