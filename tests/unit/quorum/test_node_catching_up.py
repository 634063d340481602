"""Who lags behind a log that was cut, or is new, gets its snapshot, whatever becomes of connections, sources and bytes."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import FetchSnapshotResponse
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.snapshots.taking import read_piece
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.quorum.snapshots.snapshot_world import DIRECTORY, OFTEN, Member, World, run, with_snapshots

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
        self._serve(message, reply)  # type: ignore[operator]  # set above

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
