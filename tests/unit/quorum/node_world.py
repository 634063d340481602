"""Quorum nodes on a network, logs and stores in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumFailure
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshots.image_fit import BEGINNING
from ottla.runtime.clock import Clock
from ottla.runtime.host import Host
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.quorum.memory import MemoryLog, MemoryStore
from ottla.testing.quorum.switchboard import Switchboard, SwitchboardServer


class FixedClock:
    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 1_700_000_000_000


@dataclass
class Listener:
    batches: list[CommittedBatch] = field(default_factory=list)
    leaders: list[LeaderAndEpoch] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def on_commit(self, batch: CommittedBatch) -> None:
        self.batches.append(batch)
        self.story.append(f"commit {batch.last_offset}")

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self.story.append(f"leader {leader.leader_id}")

    def on_confirmed(self) -> None:
        self.story.append("confirmed")

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        assert store_path is None, "no snapshot here"
        self.batches.clear()
        self.story.append("anew")

    @property
    def records(self) -> list[bytes]:
        return [record for batch in self.batches for record in batch.records]


class Member:
    """A node with what surrounds it; what it stores outlives it."""

    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.log = MemoryLog()
        self.store = MemoryStore()
        self.failures: list[QuorumFailure] = []
        self.listener = Listener()
        self.node: QuorumNode
        self.server: SwitchboardServer

    async def start(self, applied: OffsetAndEpoch = BEGINNING, cluster_id: str = "test", **settings: Any) -> None:
        clock: Clock = FixedClock()
        host = Host(clock, Random(self.id), None, None, None)  # type: ignore[arg-type]  # nothing asks for these
        self.listener = Listener()
        usual = {
            "voters": self.world.endpoints,
            "is_voter": self.id in self.world.endpoints,
            "endpoint": Endpoint("host", self.id),
        }
        self.node = QuorumNode(
            QuorumSettings(node_id=self.id, cluster_id=cluster_id, **{**usual, **settings}),
            host,
            self.world.switchboard,
            self.log,
            self.store,
            self.listener,
            applied=applied,
            on_failure=self.failures.append,
        )
        self.server = await self.world.switchboard.serve("host", self.id, {QUORUM_SERVICE: self.node.handle_request})
        await self.node.start()

    async def stop(self, *, graceful: bool = False) -> None:
        await self.node.stop(graceful)
        await self.server.close()

    @property
    def leads(self) -> bool:
        return self.node.is_leader and LeaderAndEpoch(self.id, self.node.leader.epoch) in self.listener.leaders


class World:
    def __init__(self, loop: SimulationLoop, voters: int) -> None:
        self.loop = loop
        self.endpoints = {node: Endpoint("host", node) for node in range(1, voters + 1)}
        self.switchboard = Switchboard()
        self.members = {node: Member(self, node) for node in self.endpoints}

    async def start(self) -> Member:
        for member in self.members.values():
            await member.start()
        return await self.leader()

    async def leader(self, *, other_than: Member | None = None) -> Member:
        await self.until(lambda: any(member.leads for member in self.members.values() if member is not other_than))
        return next(member for member in self.members.values() if member.leads and member is not other_than)

    async def until(self, condition: Callable[[], bool], limit_s: float = 5.0) -> None:
        deadline = self.loop.time() + limit_s
        while not condition():
            assert self.loop.time() < deadline, "did not come to pass"
            await asyncio.sleep(0.001)

    async def committed(self, member: Member, offset: int) -> None:
        await self.until(lambda: member.node.high_watermark > offset)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], voters: int = 3) -> None:
    loop = SimulationLoop(seed=1)
    try:
        loop.run_until_complete(scenario(World(loop, voters)))
        assert loop.unhandled == []
    finally:
        loop.close()
