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
from ottla.testing.simulation.roles import leader_of

ALL = ("node-1", "node-2", "node-3")
AT_ONCE = (
    *(Fault(100, "slow-disk", (name, 300), 5_500) for name in ALL),
    *(Fault(1_000 + 1_500 * number, BLACKOUT, ALL, 50 + 40 * number) for number in range(3)),
)
LEADER = leader_of("flights", 0)
IT_COMES_LAST = tuple(
    fault
    for begin_ms in (700, 3_200)
    for fault in (
        Fault(begin_ms - 600, "slow-disk", (LEADER, 300), 1_200),
        Fault(begin_ms, "kill", (LEADER,), 900),
        Fault(begin_ms + 1, BLACKOUT, ALL, 50),
    )
)
"""So it is the last in sync, whatever it has."""
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
        IT_COMES_LAST,
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
