"""Who still reads a log that was deleted, or lies in another directory by now: what he does not find says nothing of the disk."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.broker.handlers.fetching.cold_reads import ColdReads
from ottla.log.directories.manager import LogManager
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.results import ColdReadError
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.conftest import NOW_MS
from tests.unit.log.directories.test_moves import NAME, filled, formatted, manager_on, move_all

Leaves = Callable[[LogManager, Log], None]


def delete(manager: LogManager, log: Log) -> None:
    manager.delete(log.partition, NOW_MS)


@pytest.fixture
def platter() -> Platter:
    return formatted(1)


def cold_search(platter: Platter, manager: LogManager) -> tuple[Log, ColdReadError, Callable[[], object]]:
    """A search by time that waits for the disk; and how it goes on."""
    log = filled(manager)
    platter.cold[f"/a/{NAME}/"] = None
    search = log.search(NOW_MS)
    cold = next(search)
    assert isinstance(cold, ColdReadError)
    return log, cold, lambda: next(search)


@pytest.mark.parametrize("leave", [delete, move_all])
def test_a_search_by_time_ends_with_its_log_and_costs_no_directory(platter: Platter, leave: Leaves) -> None:
    manager = manager_on(platter)
    log, _, go_on = cold_search(platter, manager)
    leave(manager, log)
    with pytest.raises(StorageError):
        go_on()
    assert [root.failure for root in manager.roots] == [None, None]


@pytest.mark.parametrize("leave", [delete, move_all])
def test_what_cannot_be_loaded_any_more_is_left_to_the_next_read(platter: Platter, leave: Leaves) -> None:
    async def scenario() -> None:
        manager = manager_on(platter)
        log, cold, _ = cold_search(platter, manager)
        leave(manager, log)
        loaded = asyncio.Event()
        loads = ColdReads()
        loads.load([cold], loaded.set)
        await asyncio.wait_for(loaded.wait(), 5)
        loads.close()

    asyncio.run(scenario())
