"""The high watermark: below it a record is committed, acknowledged to acks=all and shown to consumers.

This is the only place that says how far it may go. Kafka's Partition.maybeIncrementLeaderHW, kraft.md 3.3.
"""

from collections.abc import Mapping

from ottla.broker.replication.decisions.isr import is_eligible
from ottla.broker.replication.decisions.replica import BrokerStanding, ReplicaState


def leader_high_watermark(
    current: int,
    leader_end_offset: int,
    leader_stable_offset: int,
    *,
    committed_isr_size: int,
    required_in_sync: int,
    maximal_isr: tuple[int, ...],
    replicas: Mapping[int, ReplicaState],
    brokers: Mapping[int, BrokerStanding],
    now_ms: int,
    lag_time_max_ms: int,
) -> int:
    """The leader's high watermark given what each follower has.

    The lowest log end among the leader (as far as it is stable, where records are synced before they are acknowledged) and the replicas that count, where these count: the maximal ISR, and whoever is
    caught up and may join (left behind now, it could never catch a busy leader). It never goes back. It does not advance
    while fewer than ``required_in_sync`` = min(min.insync.replicas, replicas) are in sync: what would be shown to consumers
    could be lost with one broker.
    """
    if committed_isr_size < required_in_sync:
        return current
    lowest = leader_stable_offset
    for broker_id, replica in replicas.items():
        if replica.log_end_offset < lowest and (
            broker_id in maximal_isr
            or (
                replica.is_caught_up(leader_end_offset, now_ms, lag_time_max_ms)
                and is_eligible(replica, brokers.get(broker_id))
            )
        ):
            lowest = replica.log_end_offset
    return max(current, lowest)


def follower_high_watermark(current: int, leaders_high_watermark: int, log_end_offset: int) -> int:
    """A follower's: what the leader said, as far as its own log goes; only raised."""
    return max(current, min(leaders_high_watermark, log_end_offset))
