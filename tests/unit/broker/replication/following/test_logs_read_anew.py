"""A log that an operation left half-way while its records wait to be stable: it is read anew, and may end earlier then."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker.replication.decisions.follower import PartitionFollower
from ottla.broker.replication.decisions.lately import Lately
from ottla.broker.replication.decisions.throttle import ReplicationThrottle
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.following.fetcher import FetcherSettings, LeaderFetcher
from ottla.broker.replication.following.leader import FetchRequest
from ottla.broker.replication.following.truncating import Truncations
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.traffic import Traffic
from ottla.log.config import LogConfig
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.real_disk import RealDisk
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.broker.replication.following.test_truncating import Syncs

RECORDS, LEFT = 5, 2


@pytest.fixture
def log(tmp_path: Path) -> Log:
    config = LogConfig(flush_before_ack=True)
    log = Log.open(RealDisk(), str(tmp_path / "flights-0"), TopicPartition("flights", 0), config, now_ms=0)
    for offset in range(RECORDS):
        log.append_as_follower(encode_batch([Record(offset, 0, None, b"v")], base_offset=offset))
    log.half_done = True
    return log


class Reading:
    """What comes of it when the log is read anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
        self.works = False
        self._end = end
        monkeypatch.setattr(Log, "make_whole", lambda log: self._make_whole(log))

    def _make_whole(self, log: Log) -> None:
        if not self.works:
            raise StorageError("no descriptor is left")
        log.half_done = False
        log.truncate_to(self._end)


def sync_all(durability: Durability, syncs: Syncs) -> None:
    durability.retry()
    while syncs.run():
        pass


def test_who_waits_for_a_log_that_is_read_anew_hears_of_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, syncs, told = Reading(monkeypatch, RECORDS), Syncs(), list[int]()
    durability = Durability(cast(Any, syncs))
    durability.follow(log, told.append)
    sync_all(durability, syncs)
    assert told == []
    reading.works = True
    sync_all(durability, syncs)
    assert told[-1] == RECORDS


class Asked:
    """A leader that is up and answers nothing."""

    is_up = True

    def __init__(self) -> None:
        self.requests: list[FetchRequest] = []

    def move(self, address: tuple[str, int] | None) -> bool:
        return False

    def fetch(self, asked: FetchRequest, on_fetched: Callable[..., object]) -> None:
        self.requests.append(asked)


def test_a_follower_goes_on_from_where_its_log_ends_when_it_was_read_anew(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, syncs, leader, timers = Reading(monkeypatch, LEFT), Syncs(), Asked(), FakeTimers()
    durability = Durability(cast(Any, syncs))

    async def scenario() -> None:
        wakes = WakeQueue(asyncio.get_running_loop())
        services = PartitionServices(1, wakes, durability, lambda: 0, lambda *_: None)
        partition = Partition("flights", 0, b"F" * 16, log, services)
        partition.follower = PartitionFollower(5, RECORDS, 0, 1_000)
        fetcher = LeaderFetcher(
            2, FetcherSettings(node_id=1), cast(Any, timers), durability, lambda: 10, Traffic(),
            Truncations(cast(Any, timers), durability), Lately(1), lambda *_: cast(Any, leader), ReplicationThrottle(),
        )  # fmt: skip
        fetcher.add(partition)
        await asyncio.sleep(0)
        assert leader.requests == []
        reading.works = True
        sync_all(durability, syncs)
        await asyncio.sleep(0)

    asyncio.run(scenario())
    ((_, ((_, _, offset, *_),)),) = leader.requests[0].partitions
    assert (offset, log.recovery_point) == (LEFT, LEFT)
