"""Whether a replica's fetches count for a throttle (KIP-73): those of one that catches up, where the topic names it.

How fast it is fed then: `decisions/throttle.py`.
"""

from typing import TYPE_CHECKING

from ottla.broker.replication.decisions.throttle import names_replica

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition


def feeds_throttled(partition: "Partition", broker_id: int) -> bool:
    """Whether what that follower is given counts for the throttle of this leader."""
    leader, config = partition.leader, partition.log.config
    return (
        leader is not None
        and broker_id not in leader.committed_isr
        and names_replica(config.leader_replication_throttled_replicas, partition.index, partition.services.node_id)
    )


def fetches_throttled(partition: "Partition") -> bool:
    """Whether what this follower fetches counts for its throttle."""
    follower, log = partition.follower, partition.log
    return (
        follower is not None
        and not partition.is_in_isr  # under a new leader it does not know yet how far that is
        and not 0 <= follower.leaders_high_watermark <= log.log_end_offset
        and names_replica(
            log.config.follower_replication_throttled_replicas, partition.index, partition.services.node_id
        )
    )
