"""Quorum nodes that take snapshots and fetch them, on simulated disks and a network in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.quorum.listener import QuorumFailure
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshots.limits import RetentionLimits, SnapshotLimits
from ottla.runtime.host import Host
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.simulation.store import SimulatedStore
from ottla.runtime.sync_later import SyncLater
from ottla.testing.quorum.state_machine import StateMachine
from ottla.testing.quorum.switchboard import Switchboard, SwitchboardServer

DIRECTORY = "/metadata"
PARTITION = TopicPartition("__cluster_metadata", 0)
RECORD = b"r" * 100
KEEP_ONE = RetentionLimits(max_bytes=0)
OFTEN = SnapshotLimits(after_bytes=2000, after_ms=0, retention=KEEP_ONE)
NEVER = SnapshotLimits(after_bytes=1 << 40, after_ms=0)


class LoopClock:
    def __init__(self, loop: SimulationLoop) -> None:
        self.loop = loop

    def monotonic_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()


class Member:
    """A node and its disk, which outlives it."""

    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.failures: list[QuorumFailure] = []
        self.wipe()

    def wipe(self) -> None:
        self.platter = Platter.seeded(self.id)
        self.platter.now_ms = self.world.clock.wall_ms
        SimulatedDisk(self.platter).make_directories(DIRECTORY)

    async def start(self, limits: SnapshotLimits = NEVER, **settings: Any) -> None:
        self.platter.close_sessions()
        disk = SimulatedDisk(self.platter)
        host = Host(self.world.clock, Random(self.id), disk, partial(SimulatedStore, disk), SyncLater())
        self.log = Log.open(disk, DIRECTORY, PARTITION, LogConfig(retention_ms=-1), now_ms=self.world.clock.wall_ms())
        self.machine = StateMachine(disk)
        self.store = SimulatedStore(disk, f"{DIRECTORY}/quorum-state")
        self.node = QuorumNode(
            QuorumSettings(
                node_id=self.id,
                cluster_id="test",
                voters=self.world.endpoints,
                is_voter=self.id in self.world.endpoints,
                endpoint=Endpoint("host", self.id),
                snapshots=limits,
                **settings,
            ),
            host,
            self.world.switchboard,
            self.log,
            self.store,
            self.machine,
            on_failure=self.failures.append,
            snapshot_directory=DIRECTORY,
        )
        self.node.set_snapshot_source(self.machine)
        self.server: SwitchboardServer = await self.world.switchboard.serve(
            "host", self.id, {QUORUM_SERVICE: self.node.handle_request}
        )
        await self.node.start()

    async def stop(self) -> None:
        await self.node.stop(graceful=False)
        await self.server.close()
        self.log.close()

    def append(self, count: int = 1, record: bytes = RECORD) -> int:
        epoch = self.node.leader.epoch
        return [self.node.append([record], epoch) for _ in range(count)][-1]

    @property
    def snapshots(self) -> list[int]:
        """Where those end that a start would find."""
        disk = SimulatedDisk(self.platter)
        names = disk.list_directory(DIRECTORY)
        return [int(name.split("-")[0]) for name in names if name.endswith(".checkpoint")]

    def segments(self, suffix: str = ".log") -> list[int]:
        names = SimulatedDisk(self.platter).list_directory(DIRECTORY)
        return [int(name.split(".")[0]) for name in names if name.endswith(suffix)]


class World:
    def __init__(self, loop: SimulationLoop, voters: int) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.endpoints = {node: Endpoint("host", node) for node in range(1, voters + 1)}
        self.switchboard = Switchboard()
        self.members = {node: Member(self, node) for node in self.endpoints}

    async def leader(self) -> Member:
        await self.until(lambda: any(member.node.is_leader for member in self.members.values()))
        leader = next(member for member in self.members.values() if member.node.is_leader)
        await self.until(lambda: leader.node.high_watermark > 0)
        return leader

    async def start(self, limits: SnapshotLimits = NEVER, **settings: Any) -> Member:
        for member in self.members.values():
            await member.start(limits, **settings)
        return await self.leader()

    async def until(self, condition: Callable[[], bool], limit_s: float = 10.0) -> None:
        deadline = self.loop.time() + limit_s
        while not condition():
            assert self.loop.time() < deadline, "did not come to pass"
            await asyncio.sleep(0.001)

    async def committed(self, member: Member, offset: int) -> None:
        await self.until(lambda: member.node.high_watermark > offset and member.machine.memory.offset >= offset)

    async def observer(self, **settings: Any) -> Member:
        member = Member(self, 9)
        await member.start(**settings)
        return member


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], voters: int = 1) -> None:
    loop = SimulationLoop(seed=1)
    try:
        loop.run_until_complete(scenario(World(loop, voters)))
        assert loop.unhandled == []
    finally:
        loop.close()


async def with_snapshots(world: World, rounds: int = 3) -> Member:
    """A leader that has taken so many, and kept one."""
    leader = await world.start(OFTEN)
    for _ in range(rounds):
        before = leader.snapshots
        await world.committed(leader, leader.append(20))
        await world.until(lambda before=before: leader.snapshots != before)  # type: ignore[misc]  # bound now
    return leader
