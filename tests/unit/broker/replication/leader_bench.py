"""The leader of a partition with three brokers, of which it is the first, at epoch 5."""

from ottla.broker.replication.decisions.isr import Proposal
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.replica import BrokerStanding

LAG_MS = 30_000


def make_leader(
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    *,
    end: int = 100,
    high_watermark: int = 0,
    min_isr: int = 1,
    now_ms: int = 1_000,
) -> PartitionLeader:
    brokers = {broker: BrokerStanding(epoch=broker * 10, fenced=False, shutting_down=False) for broker in (1, 2, 3)}
    leader = PartitionLeader(1, brokers, LAG_MS)
    leader.lead(
        epoch=5,
        partition_epoch=8,
        isr=isr,
        replicas=replicas,
        min_insync_replicas=min_isr,
        log_end_offset=end,
        stable_end_offset=end,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
    return leader


def lead_again(
    leader: PartitionLeader, *, epoch: int, partition_epoch: int, isr: tuple[int, ...], now_ms: int = 2_000
) -> bool:
    return leader.lead(
        epoch=epoch,
        partition_epoch=partition_epoch,
        isr=isr,
        replicas=(1, 2, 3),
        min_insync_replicas=1,
        log_end_offset=leader.log_end_offset,
        stable_end_offset=leader.log_end_offset,
        high_watermark=0,
        now_ms=now_ms,
    )


def fetch(leader: PartitionLeader, broker: int, offset: int, now_ms: int = 2_000) -> None:
    assert leader.fetched(broker, broker * 10, offset, None, now_ms) is not None


def expand(leader: PartitionLeader, broker: int) -> Proposal:
    proposal = leader.propose_expand(broker)
    assert proposal is not None
    return proposal
