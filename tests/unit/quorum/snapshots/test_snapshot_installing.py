"""A received snapshot is given to the application over turns of the loop: the node goes on meanwhile, and commits wait."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from crc32c import crc32c

from ottla.quorum.batches import encode_values
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.delivery import CommitDelivery
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.raft.events import SnapshotInstalled
from ottla.quorum.raft.instructions import InstallSnapshot, LeaderChanged
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.snapshots.exchange import SnapshotExchange
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.snapshots.image_fit import BEGINNING
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.testing.quorum.memory import MemoryLog
from ottla.testing.quorum.state_machine import StateMachine
from tests.unit.quorum.snapshots import snapshot_world
from tests.unit.quorum.snapshots.snapshot_world import World, run, with_snapshots

# --- in a node --------------------------------------------------------------------------------------------------------


class SlowMachine(StateMachine):
    """Takes its time to load a snapshot until ``gate`` is opened."""

    gate: asyncio.Event
    begun = 0

    def on_confirmed(self) -> None: ...

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        SlowMachine.begun += 1
        await SlowMachine.gate.wait()
        await super().on_snapshot(store_path, offset, epoch)


def run_slowly(scenario: Callable[[World], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def prepared(world: World) -> None:
        SlowMachine.gate, SlowMachine.begun = asyncio.Event(), 0
        await scenario(world)

    monkeypatch.setattr(snapshot_world, "StateMachine", SlowMachine)
    run(prepared)


def test_a_node_follows_the_log_while_its_application_loads_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        observer = await world.observer()
        await world.until(lambda: SlowMachine.begun == 1)
        last = leader.append(50, b"meanwhile")
        await world.until(lambda: observer.node.high_watermark > last)
        assert observer.machine.memory.records == []
        SlowMachine.gate.set()
        await world.committed(observer, last)
        assert observer.machine.memory == leader.machine.memory

    run_slowly(scenario, monkeypatch)


def test_a_node_that_is_stopped_meanwhile_loads_it_at_its_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        observer = await world.observer()
        await world.until(lambda: SlowMachine.begun == 1)
        await observer.stop()
        assert observer.machine.snapshots == []
        SlowMachine.gate.set()
        await observer.start()
        assert observer.machine.snapshots == leader.snapshots
        await world.committed(observer, leader.append())
        assert observer.machine.memory == leader.machine.memory

    run_slowly(scenario, monkeypatch)


# --- by itself --------------------------------------------------------------------------------------------------------


class Listener:
    def __init__(self) -> None:
        self.told: list[object] = []
        self.gates: list[asyncio.Future[None]] = []

    def on_commit(self, batch: CommittedBatch) -> None:
        self.told.append(batch.last_offset)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.told.append(leader)

    def on_confirmed(self) -> None: ...

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        await gate
        self.told.append(f"snapshot at {offset}")


class Driver:
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(work)

    def cannot_go_on(self, error: Exception) -> None:
        self.errors.append(error)


class EmptyingLog(MemoryLog):
    def truncate_fully_and_start_at(self, offset: int) -> None: ...


class Bench:
    def __init__(self) -> None:
        disk = SimulatedDisk(Platter.seeded(1))
        disk.make_directories("/metadata")
        self.files = SnapshotFiles(disk, "/metadata")
        self.log = EmptyingLog()
        self.listener = Listener()
        self.driver = Driver()
        self.delivery = CommitDelivery(self.log, self.listener, BEGINNING, self.driver.call_soon, lambda: None)
        self.exchange = SnapshotExchange(
            self.files, self.log, self.listener, self.delivery, cast(CoreDriver, self.driver)
        )
        for offset in range(30):
            self.log.append_as_follower(bytes(encode_values([b"x"], offset, 1, 0, "")), 1)

    def install(self, offset: int, data: bytes = b"an image", epoch: int = 1) -> None:
        snapshot = OffsetAndEpoch(offset, epoch)
        self.files.receive(0, data)
        installed = self.exchange.install(InstallSnapshot(snapshot, len(data), crc32c(data), None))
        assert installed == SnapshotInstalled(snapshot, None)

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def test_commits_and_leadership_wait_until_the_snapshot_is_loaded() -> None:
    async def scenario() -> None:
        bench, own = Bench(), LeaderAndEpoch(1, 2)
        bench.install(10)
        await bench.turns()
        bench.delivery.commit(12)
        bench.delivery.leader_changed(LeaderChanged(1, 2, deliver_after=10))
        await bench.turns()
        assert bench.listener.told == []
        bench.listener.gates[0].set_result(None)
        await bench.turns()
        assert bench.listener.told == ["snapshot at 10", own, 10, 11]

    asyncio.run(scenario())


def test_of_two_snapshots_the_later_one_counts() -> None:
    """Whether the application could still read the first or not: its file is gone."""

    async def scenario(outcome: Callable[["asyncio.Future[None]"], None]) -> list[object]:
        bench = Bench()
        bench.install(10)
        await bench.turns()
        bench.install(20)
        bench.delivery.commit(22)
        await bench.turns()
        assert len(bench.listener.gates) == 1, "one after the other"
        outcome(bench.listener.gates[0])
        await bench.turns()
        assert not any(isinstance(each, int) for each in bench.listener.told), "commits follow the second"
        bench.listener.gates[1].set_result(None)
        await bench.turns()
        assert bench.driver.errors == []
        return bench.listener.told[-3:]

    expected = ["snapshot at 20", 20, 21]
    assert asyncio.run(scenario(lambda gate: gate.set_exception(FileNotFoundError()))) == expected
    assert asyncio.run(scenario(lambda gate: gate.set_result(None))) == expected


def test_a_snapshot_of_another_history_at_the_same_offset_goes() -> None:
    """The disks of the others went back: what they committed anew is of an earlier epoch. Left behind, the one of the later epoch
    would be given to whoever is sent to the latest."""

    async def scenario() -> None:
        bench = Bench()
        bench.install(10, epoch=9)
        bench.install(10, epoch=8)
        assert bench.files.all() == [OffsetAndEpoch(10, 8)]

    asyncio.run(scenario())


def test_an_application_that_cannot_load_the_latest_ends_the_node() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.install(10)
        await bench.turns()
        bench.listener.gates[0].set_exception(error := OSError("no space"))
        await bench.turns()
        assert bench.driver.errors == [error]
        bench.delivery.commit(12)
        assert bench.listener.told == []

    asyncio.run(scenario())
