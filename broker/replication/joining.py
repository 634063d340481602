"""Who joins and who leaves the ISR of a partition that this broker leads. The rules are `PartitionLeader`'s; proposals go to the
controller."""

from typing import TYPE_CHECKING

from ottla.broker.replication.deleting import settle_deleted

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition


def consider_expand(partition: "Partition", broker_id: int) -> None:
    """Proposes to take a replica into the ISR if it may join: when it has fetched, and when time may have let it in."""
    leader = partition.leader
    if leader is not None and broker_id not in leader.maximal_isr:
        proposal = leader.propose_expand(broker_id)
        if proposal is not None:
            partition.services.on_proposal(partition, proposal)


def consider_shrink(partition: "Partition", now_ms: int) -> None:
    """Proposes to drop who is behind from the ISR. The timer's; forgets the partition if everyone was heard of and has everything by now."""
    leader = partition.leader
    if leader is None or (leader.high_watermark == leader.log_end_offset and not leader.has_silent_member()):
        partition.services.behind.pop(partition, None)
        return
    proposal = leader.propose_shrink(now_ms)
    if proposal is not None:
        partition.services.on_proposal(partition, proposal)


def retry_joins(partition: "Partition", now_ms: int) -> None:
    """Commits, and proposes to expand the ISR, where time may have let records through, or a broker in, and tells who waits for a replica
    that was fenced to delete. The timer's, while replicas are out of the ISR."""
    leader = partition.leader
    if leader is None:
        return
    partition.advance(leader, now_ms)
    if partition.delete_waiters:
        settle_deleted(partition)
    for replica in partition.replicas:
        if leader.hears_of(replica, now_ms):
            consider_expand(partition, replica)


def note_isr(partition: "Partition") -> None:
    """Puts the partition on the timer's list while replicas are out of its ISR."""
    leader = partition.leader
    if leader is not None and len(leader.committed_isr) < len(partition.replicas):
        partition.services.incomplete[partition] = None
    else:
        partition.services.incomplete.pop(partition, None)
