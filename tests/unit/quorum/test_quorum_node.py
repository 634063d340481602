"""The shell around the core: order, appends, commits, leadership, failures. Virtual time, no disk, no network."""

import asyncio
import errno
from unittest.mock import patch

import pytest

from ottla.quorum.batches import encode_values, parse_batches
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, NotLeaderError
from ottla.quorum.metadata.image import UnreadableRecordError
from ottla.quorum.raft.events import ResponseReceived
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import FetchResponse
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.testing.quorum.memory import MemoryFile
from tests.unit.quorum.node_world import Member, World, run


def test_what_is_appended_reaches_every_listener_in_order() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        epoch = leader.node.leader.epoch
        last = [leader.node.append([b"%d" % number, b"x"], epoch, cause="a request") for number in range(5)]
        await world.until(lambda: all(member.node.high_watermark > last[-1] for member in world.members.values()))

        for member in world.members.values():
            data = [batch for batch in member.listener.batches if batch.records]
            assert [batch.records for batch in data] == [[b"%d" % number, b"x"] for number in range(5)]
            assert [batch.last_offset for batch in data] == last
            assert {batch.cause for batch in data} == {"a request"}
            assert {batch.append_time_ms for batch in data} == {1_700_000_000_000}

    run(scenario)


def test_a_listener_that_goes_on_can_be_told_of_what_it_has_already() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        last = leader.node.append([b"x"], leader.node.leader.epoch, cause="a request")
        await world.until(lambda: leader.node.high_watermark > last)
        await leader.stop()
        told = leader.listener.batches[-1]
        applied = OffsetAndEpoch(told.last_offset + 1, told.epoch)
        await leader.start(applied=applied)
        assert list(leader.node.applied_lately(applied, 1)) == [told]
        other = OffsetAndEpoch(applied.offset, applied.epoch + 1)
        assert list(leader.node.applied_lately(other, 100)) == [], "its image is made anew, and then it is told"

    run(scenario)


def test_offsets_are_given_at_once() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        epoch, first = leader.node.leader.epoch, leader.node.next_offset

        assert leader.node.append([b"a", b"b", b"c"], epoch) == first + 2
        assert leader.node.next_offset == first + 3

    run(scenario)


def test_a_sync_that_ends_after_the_stop_touches_the_log_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns it may have closed it."""

    async def scenario(world: World) -> None:
        leader = await world.start()
        marked: list[int] = []
        monkeypatch.setattr(leader.log, "mark_synced", marked.append)
        leader.node.append([b"a"], leader.node.leader.epoch)
        await asyncio.sleep(0)
        before = len(marked)
        await leader.stop()
        await asyncio.sleep(1)
        assert len(marked) == before

    run(scenario)


def test_what_waits_for_a_sync_of_a_segment_that_went_is_synced_where_the_log_is_now() -> None:
    """A snapshot may delete a segment, or a leader's log cut it off, while a slow disk has not come to its sync."""

    async def scenario(world: World) -> None:
        leader = await world.start()
        closed = leader.log.active_file
        closed.error = OSError(errno.EBADF, "sync of a closed file")
        last, syncs = leader.node.append([b"a"], leader.node.leader.epoch), closed.syncs
        await world.until(lambda: closed.syncs > syncs)
        leader.log.active_file = MemoryFile()
        await world.until(lambda: SyncedMark(leader.store).offset == last + 1)
        assert leader.log.active_file.syncs > 0
        assert not leader.failures

    run(scenario)


def test_the_mark_of_the_synced_log_is_taken_back_before_the_log_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a crash in between, or right after, would look as if the log had rotted."""

    async def scenario(world: World) -> None:
        old = await world.start()
        others = [member for member in world.members.values() if member is not old]
        for other in others:
            await other.stop()
        last = old.node.append([b"nobody else has it"], old.node.leader.epoch)
        await world.until(lambda: SyncedMark(old.store).offset == last + 1)
        await old.stop()
        for other in others:
            await other.start()
        new = await world.leader(other_than=old)
        await world.committed(new, new.node.append([b"another"], new.node.leader.epoch))

        marks: list[tuple[int, int]] = []
        truncate_to = old.log.truncate_to

        def cut(offset: int) -> None:
            marks.append((SyncedMark(old.store).offset, offset))
            truncate_to(offset)

        monkeypatch.setattr(old.log, "truncate_to", cut)
        await old.start()
        await world.until(lambda: bool(marks))
        assert all(mark <= offset for mark, offset in marks)

    run(scenario)


def test_leadership_is_told_after_all_that_was_committed_before() -> None:
    async def scenario(world: World) -> None:
        old = await world.start()
        old.node.append([b"a"], old.node.leader.epoch)
        await world.until(lambda: all(member.node.high_watermark == 2 for member in world.members.values()))
        await old.stop()
        new = await world.leader(other_than=old)

        told = new.listener.story.index(f"leader {new.id}")
        assert new.listener.story[:told].count("commit 1") == 1
        assert new.listener.story[told - 1] == "commit 2"

    run(scenario)


def test_only_the_leader_of_the_epoch_appends() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        follower = next(member for member in world.members.values() if member is not leader)
        epoch = leader.node.leader.epoch
        with pytest.raises(NotLeaderError) as refused:
            follower.node.append([b"a"], epoch)
        with pytest.raises(NotLeaderError):
            leader.node.append([b"a"], epoch - 1)

        assert refused.value.leader == (leader.id, epoch)

    run(scenario)


def test_a_batch_too_large_is_refused_and_takes_no_offset() -> None:
    async def scenario(world: World) -> None:
        member = world.members[1]
        await member.start(batch_bytes_max=1000)
        await world.leader()
        before = member.node.next_offset
        with pytest.raises(KafkaError) as refused:
            member.node.append([bytes(2000)], member.node.leader.epoch)

        assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
        assert member.node.next_offset == before

    run(scenario, voters=1)


def test_nothing_is_committed_before_it_is_synced() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        syncs = leader.log.active_file.syncs
        last = leader.node.append([b"a"], leader.node.leader.epoch)
        await world.committed(leader, last)

        assert leader.log.active_file.syncs > syncs

    run(scenario, voters=1)


def test_appends_share_syncs() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        syncs = leader.log.active_file.syncs
        for _ in range(100):
            last = leader.node.append([b"a"], leader.node.leader.epoch)
        await world.committed(leader, last)

        assert leader.log.active_file.syncs - syncs <= 3

    run(scenario)


def test_a_graceful_stop_hands_over_at_once() -> None:
    async def scenario(world: World) -> None:
        old = await world.start()
        last = old.node.append([b"a"], old.node.leader.epoch)
        await world.committed(old, last)
        began = world.loop.time()
        await old.stop(graceful=True)

        assert old.node.leader.leader_id not in (None, old.node.node_id), "it stays until its last vote has arrived"
        await world.leader(other_than=old)
        assert world.loop.time() - began < 0.05

    run(scenario)


def test_a_leader_that_leaves_takes_nothing_and_commits_what_it_took() -> None:
    async def scenario(world: World) -> None:
        old = await world.start()
        epoch = old.node.leader.epoch
        last = old.node.append([b"a"], epoch)
        leaving = world.loop.create_task(old.stop(graceful=True))
        await asyncio.sleep(0)
        assert old.node.is_leader, "nobody has the record yet"
        with pytest.raises(NotLeaderError):
            old.node.append([b"b"], epoch)
        await leaving

        assert old.node.high_watermark > last

    run(scenario)


def test_a_graceful_stop_alone_does_not_wait() -> None:
    async def scenario(world: World) -> None:
        member = await world.start()
        began = world.loop.time()
        await member.stop(graceful=True)

        assert world.loop.time() - began < 0.05

    run(scenario, voters=1)


def test_a_broken_stream_to_the_leader_is_acted_on() -> None:
    async def scenario(world: World) -> None:
        old = await world.start()
        await world.until(lambda: all(member.node.high_watermark > 0 for member in world.members.values()))
        began = world.loop.time()
        await old.stop()
        await world.leader(other_than=old)

        assert world.loop.time() - began < 0.2

    run(scenario)


def test_a_restarted_node_goes_on_where_its_listener_stands() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        for _ in range(3):
            last = leader.node.append([b"a"], leader.node.leader.epoch)
            await world.committed(leader, last)
        follower = next(member for member in world.members.values() if member is not leader)
        await world.committed(follower, last)
        await follower.stop()
        await follower.start(OffsetAndEpoch(3, leader.node.leader.epoch))
        await world.committed(follower, last)
        await world.until(lambda: bool(follower.listener.batches))

        assert [batch.base_offset for batch in follower.listener.batches] == [3]

    run(scenario)


def test_an_observer_follows_without_voting() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        observer = Member(world, 9)
        await observer.start()
        last = leader.node.append([b"a"], leader.node.leader.epoch)
        await world.committed(observer, last)

        assert observer.listener.records == [b"a"]
        assert not observer.node.is_leader
        assert observer.log.active_file.syncs == 0
        known = [replica.id for member in world.members.values() for replica in member.node.describe().observers]
        assert known in ([], [9])

    run(scenario)


def test_a_failed_sync_stops_the_node_before_it_promises_anything() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        high_watermark = leader.node.high_watermark
        leader.log.active_file.error = OSError(5, "EIO")
        leader.node.append([b"a"], leader.node.leader.epoch)
        await world.until(lambda: bool(leader.failures))

        assert "cannot be synced" in str(leader.failures[0])
        assert leader.node.high_watermark == high_watermark

    run(scenario, voters=1)


def test_a_node_that_cannot_write_how_far_it_has_synced_stops() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        with patch.object(SyncedMark, "raise_to", side_effect=OSError(28, "No space left on device")):
            leader.node.append([b"a"], leader.node.leader.epoch)
            await world.until(lambda: bool(leader.failures))

        assert "cannot be synced" in str(leader.failures[0])

    run(scenario, voters=1)


def test_a_node_that_most_voters_disown_stops_and_learns_nothing_from_them() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        stranger = Member(world, 9)
        await stranger.start(cluster_id="other")
        await world.until(lambda: bool(stranger.failures))

        assert "belong to another cluster" in str(stranger.failures[0])
        assert stranger.node.leader == LeaderAndEpoch(None, 0)

    run(scenario)


def test_one_voter_of_another_cluster_does_not_stop_the_others() -> None:
    async def scenario(world: World) -> None:
        one, two, three = world.members.values()
        await three.start(cluster_id="other")
        await one.start()
        await two.start()
        leader = await world.leader(other_than=three)
        last = leader.node.append([b"a"], leader.node.leader.epoch)
        await world.committed(leader, last)
        await world.until(lambda: bool(three.failures))

        assert one.failures == two.failures == []
        assert "belong to another cluster" in str(three.failures[0])

    run(scenario)


def test_the_vote_is_durable() -> None:
    async def scenario(world: World) -> None:
        await world.start()

        assert all(member.store.durable_writes > 0 for member in world.members.values())

    run(scenario)


def test_a_leader_describes_how_far_everyone_is() -> None:
    async def scenario(world: World) -> None:
        leader = await world.start()
        last = leader.node.append([b"a"], leader.node.leader.epoch)
        await world.until(lambda: all(member.node.high_watermark > last for member in world.members.values()))
        description = leader.node.describe()

        assert (description.leader_id, description.high_watermark) == (leader.id, last + 1)
        assert [replica.id for replica in description.voters] == [1, 2, 3]
        assert {replica.log_end_offset for replica in description.voters} == {last + 1}
        assert all(replica.last_caught_up_ms > 0 for replica in description.voters)

    run(scenario)


@pytest.mark.parametrize(
    "error", [UnreadableRecordError("of a newer version"), KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)]
)
def test_a_node_whose_application_cannot_take_a_record_stops(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Going on would skip it, and everything after it would be wrong."""

    async def scenario(world: World) -> None:
        leader = await world.start()

        def refuse(batch: CommittedBatch) -> None:
            raise error

        reader = next(member for member in world.members.values() if member is not leader)
        monkeypatch.setattr(reader.listener, "on_commit", refuse)
        leader.node.append([b"x"], leader.node.leader.epoch)
        await world.until(lambda: bool(reader.failures))
        assert "cannot go on" in str(reader.failures[0])
        assert [member.failures for member in world.members.values() if member is not reader] == [[], []]

    run(scenario)


def test_a_node_that_meets_two_leaders_of_an_epoch_takes_nothing_of_what_told_it() -> None:
    """The answer that names another leader brings records, and what is committed of them: of which history nobody knows."""

    async def scenario(world: World) -> None:
        leader = await world.start()
        epoch = leader.node.leader.epoch
        last = leader.node.append([b"known"], epoch)
        one, other = (member for member in world.members.values() if member is not leader)
        await world.committed(one, last)
        records = parse_batches(bytes(encode_values([b"whose"], last + 1, epoch, 0, "")))
        answer = FetchResponse(epoch=epoch, leader_id=other.id, high_watermark=last + 2, records=records)
        await world.until(lambda: (leader.id, "FetchRequest") in one.node._state.inflight)
        asked = one.node._state.inflight[leader.id, "FetchRequest"]
        one.node._driver.handle(ResponseReceived(leader.id, asked, answer))
        assert "two leaders" in str(one.failures[0])
        assert (one.listener.records, one.log.log_end_offset) == ([b"known"], last + 1)

    run(scenario)
