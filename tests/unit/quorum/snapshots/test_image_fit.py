"""The image must be of the history that the log tells: who finds that it is not makes it anew, whatever undid that history."""

from collections.abc import Callable

import pytest

from ottla.quorum.batches import encode_values
from ottla.quorum.delivery import CommitDelivery
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.raft.instructions import LeaderChanged
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.snapshots.image_fit import BEGINNING, Fit, fit
from ottla.testing.quorum.memory import MemoryLog
from tests.unit.quorum.node_world import Member, World, run
from tests.unit.quorum.snapshots import snapshot_world
from tests.unit.quorum.snapshots.snapshot_world import with_snapshots

# --- the decision -----------------------------------------------------------------------------------------------------

WHOLE = LogSummary(0, 0, 10, 10, ((1, 0), (3, 5)))
SHORTENED = LogSummary(4, 2, 10, 10, ((2, 4), (3, 5)), OffsetAndEpoch(8, 3))


@pytest.mark.parametrize("applied", [(0, 0), (1, 1), (5, 1), (6, 3), (10, 3)])
def test_an_image_that_ends_in_a_record_of_the_log_is_kept(applied: tuple[int, int]) -> None:
    assert fit(OffsetAndEpoch(*applied), WHOLE) is Fit.GO_ON


@pytest.mark.parametrize("applied", [(11, 3), (12, 4)])
def test_an_image_beyond_the_logs_end_is_made_anew(applied: tuple[int, int]) -> None:
    assert fit(OffsetAndEpoch(*applied), WHOLE) is Fit.REBUILD


@pytest.mark.parametrize("applied", [(6, 1), (10, 2), (5, 3)])
def test_an_image_of_another_epoch_than_the_log_has_there_is_made_anew(applied: tuple[int, int]) -> None:
    """The log was cut, and has grown past the image's end since."""
    assert fit(OffsetAndEpoch(*applied), WHOLE) is Fit.REBUILD


def test_the_record_before_the_log_is_known_from_its_snapshot() -> None:
    assert fit(OffsetAndEpoch(4, 2), SHORTENED) is Fit.GO_ON
    assert fit(OffsetAndEpoch(4, 1), SHORTENED) is Fit.REBUILD


def test_an_image_that_ends_before_the_log_begins_is_made_anew() -> None:
    assert fit(OffsetAndEpoch(3, 1), SHORTENED) is Fit.REBUILD
    assert fit(BEGINNING, SHORTENED) is Fit.REBUILD


def test_without_what_lies_before_the_log_nothing_can_be_made_anew() -> None:
    assert fit(OffsetAndEpoch(11, 3), LogSummary(4, 2, 10, 10, ((3, 5),))) is Fit.REFUSE


def test_a_log_that_is_cut_below_its_latest_snapshot_goes_by_the_one_it_begins_with() -> None:
    log = LogSummary(4, 2, 10, 10, ((2, 4), (3, 5)), OffsetAndEpoch(8, 3))
    log.truncate(8)
    assert log.snapshot == OffsetAndEpoch(8, 3)
    log.truncate(7)
    assert log.snapshot == OffsetAndEpoch(4, 2)
    whole = LogSummary(0, 0, 10, 10, ((1, 0),), OffsetAndEpoch(8, 1))
    whole.truncate(7)
    assert whole.snapshot is None


# --- in a node --------------------------------------------------------------------------------------------------------


async def beside_a_story_of_its_own(world: World, records: int) -> tuple[Member, Member, OffsetAndEpoch]:
    """(the leader, a voter that is down, where its image ends): its log and image have two records more than the others had, which
    then went on for ``records`` in a later epoch."""
    leader = await world.start()
    last = leader.node.append([b"shared"], leader.node.leader.epoch)
    for member in world.members.values():
        await world.committed(member, last)
    epoch = leader.node.leader.epoch
    for member in world.members.values():
        await member.stop()
    odd, *others = world.members.values()
    end = odd.log.log_end_offset
    for offset in (end, end + 1):
        odd.log.append_as_follower(bytes(encode_values([b"gone"], offset, epoch, 0, "")), epoch)
    for member in others:
        await member.start()
    await world.until(lambda: any(member.leads for member in others))
    leader = next(member for member in others if member.leads)
    for number in range(records):
        await world.committed(leader, leader.node.append([b"%d" % number], leader.node.leader.epoch))
    return leader, odd, OffsetAndEpoch(end + 2, epoch)


@pytest.mark.parametrize("records", [0, 5], ids=["shorter", "longer"])
def test_a_node_whose_log_is_cut_below_its_image_makes_that_anew(records: int) -> None:
    async def scenario(world: World) -> None:
        leader, odd, applied = await beside_a_story_of_its_own(world, records)
        await odd.start(applied)
        last = leader.node.append([b"new"], leader.node.leader.epoch)
        await world.committed(odd, last)
        await world.until(lambda: b"new" in odd.listener.records)
        assert odd.listener.records == [b"shared", *(b"%d" % number for number in range(records)), b"new"]
        story = [each for each in odd.listener.story if not each.startswith("leader")]
        assert story[:3] == ["anew", "confirmed", "commit 0"], "nothing is confirmed before it is made anew"

    run(scenario)


def test_a_node_that_died_after_the_cut_finds_it_at_its_start() -> None:
    """Its log may have grown past the image's end, too."""

    async def scenario(world: World) -> None:
        leader, odd, applied = await beside_a_story_of_its_own(world, 5)
        await odd.start()
        last = leader.node.append([b"new"], leader.node.leader.epoch)
        await world.committed(odd, last)
        await odd.stop()
        assert odd.log.log_end_offset > applied.offset
        await odd.start(applied)
        assert odd.listener.story[:1] == ["anew"]
        await world.until(lambda: b"new" in odd.listener.records)
        assert odd.listener.records == leader.listener.records

    run(scenario)


def test_an_image_that_fits_is_confirmed_and_kept() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        last = leader.node.append([b"a"], leader.node.leader.epoch)
        other = next(member for member in world.members.values() if member is not leader)
        await world.committed(other, last)
        await other.stop()
        await other.start(OffsetAndEpoch(last + 1, leader.node.leader.epoch))
        await world.committed(other, leader.node.append([b"b"], leader.node.leader.epoch))
        await world.until(lambda: other.listener.records == [b"b"])
        story = [each for each in other.listener.story if not each.startswith("leader")]
        assert story == ["confirmed", f"commit {last + 1}"]

    run(scenario)


def test_what_was_committed_in_this_life_is_not_cut_and_the_node_says_what_happened() -> None:
    async def scenario(world: World) -> None:
        _, odd, applied = await beside_a_story_of_its_own(world, 0)
        await odd.start(applied)
        odd.node._state.high_watermark = applied.offset
        await world.until(lambda: bool(odd.failures))
        assert "disk of a controller went back in time" in str(odd.failures[0])
        assert "docs/quorum.md" in str(odd.failures[0])

    run(scenario)


# --- with snapshots ---------------------------------------------------------------------------------------------------


def test_a_snapshot_of_a_history_that_is_gone_goes_before_the_log_is_cut() -> None:
    """Left behind, a start would take it for what the log is to go on after, and would empty the log."""

    async def scenario(world: snapshot_world.World) -> None:
        leader = await with_snapshots(world)
        (latest,) = leader.snapshots
        leader.node._exchange.before_cut(latest)
        assert leader.snapshots == [latest]
        leader.node._exchange.before_cut(latest - 1)
        assert leader.snapshots == []
        leader.platter.power_loss()
        assert leader.snapshots == []

    snapshot_world.run(scenario)


# --- who waits --------------------------------------------------------------------------------------------------------


class Told:
    def __init__(self) -> None:
        self.story: list[object] = []

    def on_commit(self, batch: CommittedBatch) -> None:
        self.story.append(batch.last_offset)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.story.append(leader.leader_id)

    def on_confirmed(self) -> None:
        self.story.append("confirmed")

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None: ...


def delivery_of(told: Told, applied: OffsetAndEpoch, turns: list[Callable[[], None]]) -> CommitDelivery:
    log = MemoryLog()
    for offset in range(10):
        log.append_as_follower(bytes(encode_values([b"x"], offset, 1, 0, "")), 1)
    return CommitDelivery(log, told, applied, turns.append, lambda: None)


def test_an_image_is_confirmed_when_the_high_watermark_has_reached_it() -> None:
    told = Told()
    delivery = delivery_of(told, OffsetAndEpoch(6, 1), [])
    delivery.commit(5)
    assert told.story == []
    delivery.commit(6)
    delivery.commit(8)
    assert told.story == ["confirmed", 6, 7]


def test_a_leadership_that_an_image_of_another_history_has_passed_waits_for_the_one_made_anew() -> None:
    told, own = Told(), 1
    delivery = delivery_of(told, OffsetAndEpoch(9, 1), [])
    delivery.pause()
    delivery.leader_changed(LeaderChanged(own, 2, deliver_after=4))
    delivery.commit(4)
    assert told.story == []
    delivery.restart_at(BEGINNING)
    delivery.deliver()
    assert told.story == ["confirmed", 0, 1, 2, 3, own]
