"""Records that count before they are on stable storage, where that is promised (`ottla.flush.before.ack`)."""

from typing import Any

from ottla.broker.replication.decisions import leader
from ottla.broker.replication.decisions.follower_session import Key
from ottla.broker.replication.decisions.high_watermark import leader_high_watermark
from ottla.broker.replication.following.fetcher import LeaderFetcher
from ottla.broker.replication.partition import Partition
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.dimensions.power import BLACKOUT
from ottla.testing.simulation.planted.bug import PlantedBug

ALL = ("node-1", "node-2", "node-3")
AT_ONCE = (
    *(Fault(100, "slow-disk", (name, 300), 5_500) for name in ALL),
    *(Fault(1_000 + 1_500 * number, BLACKOUT, ALL, 50 + 40 * number) for number in range(3)),
)
LOST = (
    "a leader has every committed record",
    "who joins the ISR has what is committed",
    "every in-sync replica has what is committed",
)


def _counts_what_is_written(current: int, end: int, stable: int, **known: Any) -> int:
    return leader_high_watermark(current, end, end, **known)


def _asks_before_it_is_synced(fetcher: LeaderFetcher, key: Key, partition: Partition, follower: Any) -> None:
    fetcher._session.put(key, fetcher._wanted(partition, follower))
    fetcher._send_soon()


POWER = (
    PlantedBug(
        "count what the leader has not synced",
        "leader_high_watermark: where records are synced first, the leader's own count when they are",
        ((leader, "leader_high_watermark", _counts_what_is_written),),
        2,
        AT_ONCE,
        LOST,
        ("power",),
    ),
    PlantedBug(
        "fetch on before it is synced",
        "LeaderFetcher._ask: to fetch from there says that all before is on stable storage",
        ((LeaderFetcher, "_ask_when_stable", _asks_before_it_is_synced),),
        2,
        AT_ONCE,
        LOST,
        ("power",),
    ),
)
