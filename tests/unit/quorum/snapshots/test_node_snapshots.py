"""When a node takes snapshots, what its log then forgets, and what a restart begins with."""

import asyncio
import errno

import pytest

from ottla.quorum.log_start import LogStartError
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.snapshots.limits import RetentionLimits, SnapshotLimits
from ottla.quorum.snapshots.taking import CLEAN_INTERVAL_S
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.loop import SimulationLoop
from tests.unit.quorum.snapshots.snapshot_world import DIRECTORY, OFTEN, Member, World, run, with_snapshots

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


def test_what_was_copied_of_a_snapshot_does_not_fill_a_disk_that_is_full() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        following = leader.node.next_offset + 20
        mend = leader.platter.fail(f"{DIRECTORY}/{following:020d}-", errno.ENOSPC)
        await world.committed(leader, leader.append(20))
        await asyncio.sleep(1)
        assert not [name for name in SimulatedDisk(leader.platter).list_directory(DIRECTORY) if "checkpoint" in name]
        mend()
        last = leader.append(20)
        await world.until(lambda: leader.snapshots == [last + 1])

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
        damage(leader, leader.snapshots[0])
        with pytest.raises(LogStartError, match="is damaged"):
            await leader.start()

    run(scenario)


def damage(member: Member, offset: int) -> None:
    file = SimulatedDisk(member.platter).open(f"{DIRECTORY}/{offset:020d}-0000000001.checkpoint")
    file.write_at([b"\xff"], 100)


def test_an_image_is_made_of_an_older_snapshot_where_the_latest_is_damaged() -> None:
    """The log goes on from there."""

    async def scenario(world: World) -> None:
        leader = await world.start(SnapshotLimits(after_bytes=2000, after_ms=0, retention=RetentionLimits(30_000)))
        while not leader.log.log_start_offset or len(leader.snapshots) < 2:
            assert leader.log.log_end_offset < 2000, "no log that begins with the first of two snapshots"
            await world.committed(leader, leader.append(5))
        *_, older, latest = sorted(leader.snapshots)
        assert leader.log.log_start_offset > 0
        records = leader.machine.memory.records
        await leader.stop()
        damage(leader, latest)
        await leader.start()
        assert leader.machine.snapshots == [older]
        await world.until(lambda: leader.machine.memory.records == records)

    run(scenario)


def test_a_log_stays_known_as_synced_where_the_snapshot_to_take_its_place_arrives_damaged() -> None:
    """What the voter acknowledged lies in it, and must not rot away unnoticed."""

    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        lagging = next(each for each in world.members.values() if each is not leader)
        await world.committed(lagging, leader.append(5))
        await lagging.stop()
        for _ in range(2):
            before = leader.snapshots
            await world.committed(leader, leader.append(20))
            await world.until(lambda before=before: leader.snapshots != before)  # type: ignore[misc]  # bound now
        damage(leader, leader.snapshots[0])
        await lagging.start(OFTEN)
        await world.until(lambda: arrived_damaged(lagging))
        assert SyncedMark(lagging.store).offset == lagging.log.log_end_offset > 0

    run(scenario, voters=3)


def test_a_plain_brokers_log_is_not_taken_for_synced_where_a_snapshot_arrives_damaged() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start(OFTEN)
        observer = await world.observer()
        await world.committed(observer, leader.append(5))
        await observer.stop()
        for _ in range(2):
            before = leader.snapshots
            await world.committed(leader, leader.append(20))
            await world.until(lambda before=before: leader.snapshots != before)  # type: ignore[misc]  # bound now
        damage(leader, leader.snapshots[0])
        await observer.start()
        await world.until(lambda: arrived_damaged(observer))
        assert SyncedMark(observer.store).offset == 0

    run(scenario)


def arrived_damaged(member: Member) -> bool:
    role = member.node._state.role
    return isinstance(role, Follower) and role.damaged_downloads > 0
