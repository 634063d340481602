"""A new log is recognised after a power cut, whatever the disk kept of it."""

from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.names_sync import ALL_AT_ONCE, NamesSync
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import METADATA_PARTITION, TopicPartition
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.conftest import NOW_MS, MakeBatch

TOPIC_ID = bytes(range(16))
CONFIG = LogConfig()
NAME = TopicPartition("flights", 0)


def manager_on(platter: Platter) -> LogManager:
    settings = ManagerSettings(cluster_id="c", node_id=1)
    manager = LogManager(SimulatedDisk(platter), ["/data"], CONFIG, settings, Random(1))
    manager.open_all(0)
    return manager


def formatted(seed: int) -> Platter:
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    disk.sync_directory("/")
    MetaProperties("c", 1, bytes(15) + b"\x09").write(disk, "/data")
    return platter


def create(manager: LogManager, index: int = 0) -> Log:
    return manager.get_or_create(TopicPartition("flights", index), CONFIG, TOPIC_ID, now_ms=0)


def sync_names(log: Log) -> None:
    """What the broker has a thread do."""
    ticket = log.unsynced_names()
    ticket.file.sync()
    log.mark_synced(ticket)


@pytest.mark.parametrize("seed", range(40))
def test_an_acknowledged_log_is_known_by_its_topic_after_a_power_cut(seed: int, make_batch: MakeBatch) -> None:
    """Nothing of its records was synced: what is left of them must not be taken for a stray."""
    platter = formatted(seed)
    log = create(manager_on(platter))
    assert log.must_sync
    sync_names(log)
    assert not log.must_sync
    log.append_as_leader(make_batch(3), 0, NOW_MS)
    platter.power_loss()
    found = manager_on(platter)
    assert list(found.logs) == [NAME]
    assert found.strays(lambda partition, topic_id: topic_id == TOPIC_ID) == []


def test_without_the_sync_it_may_not_be_known(make_batch: MakeBatch) -> None:
    """That the test above tests something."""
    unknown = 0
    for seed in range(40):
        platter = formatted(seed)
        create(manager_on(platter)).append_as_leader(make_batch(3), 0, NOW_MS)
        platter.power_loss()
        unknown += len(manager_on(platter).strays(lambda partition, topic_id: topic_id == TOPIC_ID))
    assert unknown


def test_names_that_changed_during_a_sync_are_not_taken_as_synced(make_batch: MakeBatch) -> None:
    log = create(manager_on(formatted(1)))
    ticket = log.unsynced_names()
    ticket.file.sync()
    log.append_as_leader(make_batch(3), 0, NOW_MS)
    log.roll()
    log.mark_synced(ticket)
    assert log.must_sync
    sync_names(log)
    assert not log.must_sync


def test_a_log_that_found_itself_after_a_hard_stop_is_new_again() -> None:
    platter = formatted(1)
    sync_names(create(manager_on(platter)))
    platter.close_sessions()
    assert manager_on(platter).logs[NAME].must_sync


def test_after_a_clean_stop_it_is_not() -> None:
    platter = formatted(1)
    manager = manager_on(platter)
    create(manager)
    manager.close()
    platter.close_sessions()
    assert not manager_on(platter).logs[NAME].must_sync


def test_a_topic_that_syncs_first_does_so_also_later() -> None:
    log = create(manager_on(formatted(1)))
    sync_names(log)
    log.configure(LogConfig(flush_before_ack=True))
    assert log.must_sync
    log.configure(CONFIG)
    assert not log.must_sync


@pytest.mark.parametrize("count", [ALL_AT_ONCE - 1, ALL_AT_ONCE])
@pytest.mark.parametrize("seed", range(4))
def test_many_are_made_durable_together(count: int, seed: int) -> None:
    platter = formatted(seed)
    manager = manager_on(platter)
    logs = [create(manager, index) for index in range(count)]
    before = platter.operations
    NamesSync(manager.disk, [log.names_to_sync() for log in logs]).sync()
    assert (platter.operations - before == 1) == (count == ALL_AT_ONCE)
    platter.power_loss()
    found = manager_on(platter)
    assert [log.topic_id for log in found.logs.values()] == [TOPIC_ID] * count


def test_a_log_that_was_deleted_meanwhile_needs_no_sync() -> None:
    manager = manager_on(formatted(1))
    ticket = create(manager).unsynced_names()
    manager.delete(NAME, 0)
    ticket.file.sync()


def test_who_asks_for_one_log_shares_the_sync_of_many(make_batch: MakeBatch) -> None:
    manager = manager_on(formatted(1))
    logs = [create(manager, index) for index in range(ALL_AT_ONCE)]
    names = NamesSync(manager.disk, [log.names_to_sync() for log in logs])
    tickets = [log.unsynced_names(names) for log in logs]
    logs[0].append_as_leader(make_batch(), 0, NOW_MS)
    logs[1].append_as_leader(make_batch(), 0, NOW_MS)
    logs[1].roll()  # another name
    assert logs[0].unsynced() is tickets[0]
    ticket = logs[1].unsynced()
    assert ticket is not None
    assert ticket.file is not names
    names.sync()
    for log, each in zip(logs, tickets, strict=True):
        log.mark_synced(each)
    assert [log.must_sync for log in logs[:3]] == [False, True, False]
    assert logs[0].unsynced() is not tickets[0]


def test_no_topic_takes_the_place_of_the_metadata_log() -> None:
    """A controller of before this was refused may have let one be created."""
    platter = formatted(1)
    disk, place = SimulatedDisk(platter), f"/data/{METADATA_PARTITION}"
    disk.make_directories(place)
    disk.open(f"{place}/{0:020}.log", create=True).write_at([b"the quorum's records"], 0)
    with pytest.raises(StorageError):
        manager_on(platter).get_or_create(METADATA_PARTITION, CONFIG, TOPIC_ID, now_ms=0)
    assert disk.list_directory(place) == [f"{0:020}.log"]
