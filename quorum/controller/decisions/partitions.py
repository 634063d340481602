"""What happens to partitions when a broker comes, goes or is about to."""

from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.partition_change import Election, PartitionChangeBuilder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import NO_LEADER, PartitionView

NOBODY = -1


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
    return PartitionChangeBuilder(key, partition, can_lead, state.directory_for_new_replica, election)


def take_out(state: ControllerState, broker_id: int, records_max: int | None = None) -> list[Record]:
    """Removes a broker from every ISR and finds other leaders: it is fenced, shutting down or unregistered.

    With ``records_max`` it stops there; to go on, replay them and call again until there is nothing left.
    """
    records: list[Record] = []
    for key, partition in state.replicas.partitions_of(broker_id):
        if broker_id in partition.isr or broker_id == partition.leader:
            builder = change_builder(state, key, partition, leaving=broker_id)
            builder.isr = tuple(each for each in partition.isr if each != broker_id)
            _add(records, builder)
            if len(records) == records_max:
                break
    return records


def bring_back(state: ControllerState, broker_id: int) -> list[Record]:
    """Lets a broker that is unfenced lead the partitions that have nobody and that it is in sync with."""
    records: list[Record] = []
    for key, partition in state.replicas.partitions_of(broker_id):
        if partition.leader == NO_LEADER:
            _add(records, change_builder(state, key, partition, coming=broker_id))
    return records


def lose_directories(state: ControllerState, broker_id: int, lost: tuple[bytes, ...]) -> list[Record]:
    """Takes a broker out of the partitions whose replica is in a directory that it cannot read any more."""
    records: list[Record] = []
    for key, partition in state.replicas.partitions_of(broker_id):
        if partition.directory_of(broker_id) in lost and (broker_id in partition.isr or broker_id == partition.leader):
            builder = change_builder(state, key, partition, leaving=broker_id)
            builder.isr = tuple(each for each in partition.isr if each != broker_id)
            _add(records, builder)
    return records


def leads_any(state: ControllerState, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, partition in state.replicas.partitions_of(broker_id))


def _add(records: list[Record], builder: PartitionChangeBuilder) -> None:
    record = builder.build()
    if record is not None:
        records.append(record)
