"""The node's half of snapshots: when one is taken, what goes then, and how another node catches up from it. Real logs on
simulated disks, in virtual time."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.quorum.listener import QuorumFailure
from ottla.quorum.log_start import LogStartError
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import FetchSnapshotResponse
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshot_files import SnapshotFiles
from ottla.quorum.snapshot_limits import RetentionLimits, SnapshotLimits
from ottla.quorum.snapshotting import CLEAN_INTERVAL_S, read_piece
from ottla.runtime.errors import ErrorCode
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
            SimulatedStore(disk, f"{DIRECTORY}/quorum-state"),
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
        await world.until(lambda before=before: leader.snapshots != before)  # type: ignore[misc]
    return leader


# --- taking -----------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_taken_once_enough_was_appended() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        await world.committed(leader, leader.append(5))
        await asyncio.sleep(5)
        assert leader.snapshots == []
        last = leader.append(20)
        await world.until(lambda: leader.snapshots == [last + 1])

    run(scenario)


def test_time_alone_takes_a_snapshot_of_what_is_new() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(SnapshotLimits(after_bytes=1 << 40, after_ms=60_000))
        await world.committed(leader, leader.append())
        await asyncio.sleep(61)
        assert leader.snapshots == []  # looked at when something is committed (as in Kafka)
        last = leader.append()
        await world.until(lambda: leader.snapshots == [last + 1])

    run(scenario)


def test_an_hour_without_commits_takes_none() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(SnapshotLimits(after_bytes=2000, after_ms=60_000))
        last = leader.append(20)
        await world.until(lambda: leader.snapshots == [last + 1])
        await asyncio.sleep(3600)
        assert leader.snapshots == [last + 1]

    run(scenario)


def test_what_was_appended_before_a_restart_counts() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        await world.committed(leader, leader.append(8))
        await leader.stop()
        await leader.start(OFTEN)
        await world.leader()
        last = leader.append(8)
        await world.until(lambda: leader.snapshots == [last + 1])

    run(scenario)


def test_commits_go_on_while_a_snapshot_is_taken() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        await world.committed(leader, leader.append(20))
        last = leader.append(200)
        await world.committed(leader, last)
        await world.until(lambda: bool(leader.snapshots) and leader.snapshots[-1] > 150)
        assert leader.failures == []

    run(scenario)


def test_the_log_is_cut_where_the_oldest_snapshot_left_ends() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world, rounds=1)
        assert leader.log.log_start_offset == 0, "one snapshot: who lags a little reads on in the log"
        leader.append(20)
        first = leader.snapshots
        await world.until(lambda: leader.snapshots not in (first, []) and len(leader.snapshots) == 1)
        assert leader.snapshots == [leader.log.log_start_offset]
        assert leader.segments() == [leader.log.log_end_offset]

    run(scenario)


def test_log_and_snapshots_stay_within_their_limits() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(SnapshotLimits(2000, 0, RetentionLimits(max_bytes=100_000)))
        for _ in range(12):
            await world.committed(leader, leader.append(20))
            await asyncio.sleep(0.1)
        assert len(leader.snapshots) > 1
        assert leader.snapshots[0] == leader.log.log_start_offset > 0

    run(scenario)


def test_what_became_too_old_goes_without_a_new_snapshot() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(SnapshotLimits(2000, 0, RetentionLimits(max_ms=1_000_000)))
        for _ in range(3):
            await world.committed(leader, leader.append(20))
            await asyncio.sleep(1)
        before = leader.snapshots
        assert len(before) == 3
        await asyncio.sleep(1_000 + CLEAN_INTERVAL_S)
        assert leader.snapshots == before[-1:] == [leader.log.log_start_offset]

    run(scenario)


def test_a_snapshot_that_somebody_removed_does_not_end_the_node() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(SnapshotLimits(2000, 0, RetentionLimits(max_ms=1_000_000)))
        for _ in range(2):
            await world.committed(leader, leader.append(20))
            await asyncio.sleep(1)
        first, second = leader.snapshots
        SimulatedDisk(leader.platter).unlink(f"{DIRECTORY}/{first:020d}-0000000001.checkpoint")
        last = leader.append(20)
        await world.until(lambda: leader.snapshots == [second, last + 1])
        assert leader.failures == []

    run(scenario)


def test_removed_segments_are_unlinked_after_a_while() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        await asyncio.sleep(1)
        assert leader.segments(".log.deleted")
        await asyncio.sleep(60 + 2 * CLEAN_INTERVAL_S)
        assert not leader.segments(".log.deleted")

    run(scenario)


def test_a_full_disk_costs_the_snapshot_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        mend = leader.platter.fail(f"{DIRECTORY}/taking", errno.ENOSPC)
        await world.committed(leader, leader.append(20))
        await asyncio.sleep(1)
        assert leader.snapshots == []
        mend()
        last = leader.append(20)
        await world.until(lambda: leader.snapshots == [last + 1])
        assert leader.failures == []

    run(scenario)


def test_a_log_that_cannot_be_rolled_ends_the_node() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        last = leader.append(20)
        leader.platter.fail(f"{DIRECTORY}/{last + 1:020d}.", errno.EIO, ("create",))
        await world.until(lambda: bool(leader.failures))

    loop = SimulationLoop(seed=1)
    try:
        loop.run_until_complete(scenario(World(loop, 1)))
    finally:
        loop.close()


# --- starting ---------------------------------------------------------------------------------------------------------


def test_a_restart_begins_with_the_snapshot_and_reads_the_rest_of_the_log() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        last = leader.append(5, b"afterwards")
        await world.committed(leader, last)
        records = leader.machine.memory.records
        await leader.stop()
        await leader.start()
        await world.committed(leader, last)
        assert leader.machine.snapshots == leader.snapshots
        assert leader.machine.memory.records == records

    run(scenario)


def test_a_log_without_the_snapshot_it_begins_with_is_refused() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        await leader.stop()
        disk = SimulatedDisk(leader.platter)
        for name in disk.list_directory(DIRECTORY):
            if "checkpoint" in name:
                disk.unlink(f"{DIRECTORY}/{name}")
        with pytest.raises(LogStartError, match="no snapshot has what lies before"):
            await leader.start()

    run(scenario)


def test_a_damaged_snapshot_is_not_loaded() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        await leader.stop()
        file = SimulatedDisk(leader.platter).open(f"{DIRECTORY}/{leader.snapshots[0]:020d}-0000000001.checkpoint")
        file.write_at([b"\xff"], 100)
        with pytest.raises(LogStartError, match="is damaged"):
            await leader.start()

    run(scenario)


# --- catching up ------------------------------------------------------------------------------------------------------


def test_a_new_observer_begins_with_the_snapshot() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        last = leader.append(5, b"afterwards")
        observer = await world.observer()
        await world.committed(observer, last)
        assert observer.machine.snapshots == leader.snapshots
        assert observer.machine.memory == leader.machine.memory
        assert observer.log.log_start_offset == leader.snapshots[0]

    run(scenario)


def test_an_observer_takes_snapshots_of_its_own() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        observer = await world.observer(limits=OFTEN)
        await world.committed(leader, leader.append(25))
        await world.until(lambda: bool(observer.snapshots))
        assert leader.snapshots == []

    run(scenario)


def test_a_follower_that_lags_behind_the_log_catches_up_and_goes_on() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        lagging = next(member for member in world.members.values() if member is not leader)
        before = leader.append()
        await world.committed(lagging, before)
        await lagging.stop()
        for _ in range(3):
            await world.committed(leader, leader.append(20))
            await asyncio.sleep(0.5)
        assert leader.log.log_start_offset > before + 1
        await lagging.start()
        await world.committed(lagging, leader.append())
        assert lagging.machine.snapshots == [lagging.log.log_start_offset]
        assert lagging.machine.memory == leader.machine.memory

    run(scenario, voters=3)


def test_what_was_received_survives_a_restart() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        observer = await world.observer()
        await world.until(lambda: bool(observer.machine.snapshots))
        await observer.stop()
        await leader.stop()
        await observer.start()
        assert observer.machine.snapshots == leader.snapshots

    run(scenario)


class Line:
    """Stands between an observer and the one node that has what it wants; sees and spoils answers with pieces of snapshots."""

    def __init__(self, member: Member) -> None:
        self.asked: list[int] = []
        self.spoil: Callable[[Any], Any] = lambda answer: answer
        self._member = member
        self._serve = member.server.handlers[QUORUM_SERVICE]
        member.server.handlers = {QUORUM_SERVICE: self._handle}

    def _handle(self, message: Any, reply: Callable[[Any], None]) -> None:
        if message.WhichOneof("body") == "fetch_snapshot":
            self.asked.append(message.fetch_snapshot.position)
            deliver, reply = reply, lambda answer: self._pass_on(answer, deliver)
        self._serve(message, reply)  # type: ignore[operator]

    def _pass_on(self, answer: Any, deliver: Callable[[Any], None]) -> None:
        spoilt = self.spoil(answer)
        if spoilt is not None:
            deliver(spoilt)


def test_a_cut_connection_costs_no_piece_that_was_received() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        line = Line(leader)

        def lose_the_third(answer: Any) -> Any:
            return None if len(line.asked) == 3 else answer

        line.spoil = lose_the_third
        observer = await world.observer(snapshot_fetch_max_bytes=500)
        await world.until(lambda: bool(observer.machine.snapshots))
        pieces = list(range(0, line.asked[-1] + 1, 500))
        assert len(pieces) > 3
        assert line.asked == [*pieces[:3], *pieces[2:]]

    run(scenario)


def test_another_snapshot_than_before_is_begun_anew() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        line = Line(leader)

        def replace_after_the_second(answer: Any) -> Any:
            if len(line.asked) == 2:
                leader.append(20)  # and soon the snapshot under way is gone
            return answer

        line.spoil = replace_after_the_second
        first = leader.snapshots
        observer = await world.observer(snapshot_fetch_max_bytes=100)
        await world.until(lambda: bool(observer.machine.snapshots))
        assert observer.machine.snapshots == leader.snapshots != first
        assert line.asked.count(0) == 2
        assert observer.failures == []

    run(scenario)


def test_damaged_bytes_are_fetched_again() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        line = Line(leader)

        def flip_a_bit(answer: Any) -> Any:
            if len(line.asked) == 2:
                data = bytearray(answer.fetch_snapshot.data)
                data[0] ^= 1
                answer.fetch_snapshot.data = bytes(data)
            return answer

        line.spoil = flip_a_bit
        observer = await world.observer(snapshot_fetch_max_bytes=500)
        await world.until(lambda: bool(observer.machine.snapshots))
        assert line.asked.count(0) == 2
        assert observer.machine.memory.records == leader.machine.memory.records
        assert observer.failures == []

    run(scenario)


def test_half_a_snapshot_is_never_used() -> None:
    async def scenario(world: World) -> None:
        leader = await with_snapshots(world)
        line = Line(leader)
        line.spoil = lambda answer: answer if len(line.asked) < 3 else None
        observer = await world.observer(snapshot_fetch_max_bytes=500)
        await world.until(lambda: len(line.asked) > 3)
        assert observer.machine.snapshots == observer.snapshots == []
        await observer.stop()
        line.spoil = lambda answer: answer
        await observer.start()
        await world.until(lambda: bool(observer.machine.snapshots))
        assert observer.machine.memory.records == leader.machine.memory.records

    run(scenario)


def test_an_observer_whose_source_is_gone_asks_another() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        for _ in range(3):
            await world.committed(leader, leader.append(20))
            await asyncio.sleep(0.5)
        lines = {member.id: Line(member) for member in world.members.values()}
        observer = Member(world, 9)
        for line in lines.values():
            line.spoil = lambda answer: None if sum(len(each.asked) for each in lines.values()) > 1 else answer
        await observer.start(snapshot_fetch_max_bytes=500)
        await world.until(lambda: any(line.asked for line in lines.values()))
        gone = next(node for node, line in lines.items() if line.asked)
        for node, line in lines.items():
            line.spoil = (lambda answer: None) if node == gone else (lambda answer: answer)
        await world.until(lambda: bool(observer.machine.snapshots), limit_s=30)
        assert any(line.asked for node, line in lines.items() if node != gone)

    run(scenario, voters=3)


# --- pieces -----------------------------------------------------------------------------------------------------------


def piece(files: SnapshotFiles | None, snapshot: OffsetAndEpoch | None, position: int = 0) -> FetchSnapshotResponse:
    return read_piece(files, FetchSnapshotResponse(epoch=1, snapshot=snapshot, position=position), 100)


def test_pieces_outside_a_snapshot_are_refused() -> None:
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)
    disk.make_directories(DIRECTORY)
    files, known = SnapshotFiles(disk, DIRECTORY), OffsetAndEpoch(5, 1)
    files.receive(0, b"x" * 150)
    disk.rename(f"{DIRECTORY}/receiving.checkpoint.part", files.taking_path)
    description = files.measure()
    files.freeze_taken(known, description)
    files.add(known, description)

    assert len(piece(files, known).data) == 100
    assert len(piece(files, known, 100).data) == 50
    assert piece(files, known, 150).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert piece(files, known, -1).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert piece(files, OffsetAndEpoch(6, 1)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert piece(None, known).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert piece(files, None).error is ErrorCode.SNAPSHOT_NOT_FOUND
    platter.fail(DIRECTORY, errno.EIO)
    assert piece(files, known).error is ErrorCode.KAFKA_STORAGE_ERROR
