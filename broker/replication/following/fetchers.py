"""One fetcher for each broker that leads something this one follows."""

from collections.abc import Callable

from ottla.broker.replication.decisions.lately import Lately
from ottla.broker.replication.decisions.throttle import ReplicationThrottle
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.following.fetcher import FetcherSettings, LeaderFetcher
from ottla.broker.replication.following.leader import OpenLeader
from ottla.broker.replication.following.truncating import Truncations
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.traffic import Traffic
from ottla.log.log import Log
from ottla.runtime.timers import LoopTimers

LOST_MS = 2_000
"""By then a leader that died was replaced, and one that lives but not for this follower can be asked by others again."""


class Fetchers:
    """Makes fetchers when they are needed and ends them when they follow nothing any more."""

    def __init__(
        self,
        settings: FetcherSettings,
        timers: LoopTimers,
        durability: Durability,
        broker_epoch: Callable[[], int],
        traffic: Traffic,
        open_leader: OpenLeader,
        throttle: ReplicationThrottle,
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._durability = durability
        self._broker_epoch = broker_epoch
        self._traffic = traffic
        self._open_leader = open_leader
        self._throttle = throttle
        self._truncations = Truncations(timers, durability)
        self._lost = Lately(LOST_MS)
        self._by_leader: dict[int, LeaderFetcher] = {}
        self._of: dict[Partition, LeaderFetcher] = {}

    def add(self, partition: Partition, leader_id: int, address: tuple[str, int] | None) -> None:
        """Fetches the partition from ``leader_id``; waits while nobody knows its address."""
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = LeaderFetcher(
                leader_id,
                self._settings,
                self._timers,
                self._durability,
                self._broker_epoch,
                self._traffic,
                self._truncations,
                self._lost,
                self._open_leader,
                self._throttle,
            )
            self._by_leader[leader_id] = fetcher
        fetcher.move(address)
        self._of[partition] = fetcher
        fetcher.add(partition)

    def remove(self, partition: Partition) -> None:
        fetcher = self._of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
            if fetcher.is_idle:
                self._lost.forget(fetcher.leader_id)
                # It stays connected for a moment's worth of metadata only if it gets another partition in this turn.
                self._timers.call_later_ms(1, lambda: self._end_if_idle(fetcher))

    def move(self, leader_id: int, address: tuple[str, int] | None) -> None:
        """The broker registered, perhaps with another address, or went."""
        fetcher = self._by_leader.get(leader_id)
        if fetcher is not None:
            fetcher.move(address)

    def log_moved(self, old: Log, new: Log) -> None:
        """A follower's log lies in another directory now, with all that it had: if it was to be cut, it still is."""
        self._truncations.moved(old, new)

    def lost_leaders(self) -> frozenset[int]:
        """Leaders that just closed their connection to this follower, as a process that ends does. Asks the system, too: the
        end of a connection and the question of a client whose connection ended with it may wait in the same turn."""
        for fetcher in self._by_leader.values():
            fetcher.notice_end()
        return self._lost.at(self._timers.now_ms())

    def close(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.close()
        self._by_leader.clear()
        self._of.clear()

    def _end_if_idle(self, fetcher: LeaderFetcher) -> None:
        if fetcher.is_idle and self._by_leader.get(fetcher.leader_id) is fetcher:
            del self._by_leader[fetcher.leader_id]
            fetcher.close()
