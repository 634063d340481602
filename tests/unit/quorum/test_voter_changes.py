"""Voter changes as nodes make them: asked anywhere, decided by the leader, kept in the log."""

import asyncio
import logging
from typing import Any

import pytest

from ottla.quorum.control_records import UnreadableLevelError, control_batch
from ottla.quorum.initial_voters import read_initial_voters, write_initial_voters
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.instructions import AppendControl, KRaftVersion
from ottla.quorum.raft.messages import VoterChangeResponse
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.identifiers import id_to_text
from ottla.runtime.real_disk import RealDisk
from tests.unit.quorum.node_world import Member, World, run


def disk(node: int) -> bytes:
    return bytes([node]) * 16


def place(node: int) -> Endpoint:
    return Endpoint("host", node)


def formatted(*nodes: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(node, disk(node)), place(node)) for node in nodes)


async def start_dynamic(world: World, *voters: int) -> Member:
    """Nodes formatted with these initial controllers, and no static voters."""
    for node in voters:
        await join(world, node, initial_voters=formatted(*voters))
    return await world.leader()


async def join(world: World, node: int, **settings: object) -> Member:
    member = world.members.setdefault(node, Member(world, node))
    fields = {"voters": {}, "is_voter": True, "bootstrap": (place(1), place(2)), "directory_id": disk(node)}
    await member.start(**{**fields, **settings})  # type: ignore[arg-type]  # keywords of many types
    return member


async def add(asked: Member, node: int, timeout_ms: int = 1000) -> VoterChangeResponse:
    done: asyncio.Future[VoterChangeResponse] = asyncio.get_running_loop().create_future()
    asked.node.voter_changes.add(ReplicaKey(node, disk(node)), place(node), done.set_result, timeout_ms)
    return await done


async def remove(asked: Member, node: int, timeout_ms: int = 1000) -> VoterChangeResponse:
    done: asyncio.Future[VoterChangeResponse] = asyncio.get_running_loop().create_future()
    asked.node.voter_changes.remove(ReplicaKey(node, disk(node)), done.set_result, timeout_ms)
    return await done


def voters(member: Member) -> list[int]:
    return [each.id for each in member.node.describe().voters]


async def added(asked: Member, node: int) -> None:
    """It is refused until the node asked knows the leader and the new one has caught up."""
    for _ in range(100):
        if (await add(asked, node)).error is ErrorCode.NONE:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"node {node} was not added")


def test_a_node_joins_a_quorum_that_no_setting_names() -> None:
    async def scenario(world: World) -> None:
        await start_dynamic(world, 1)
        four = await join(world, 4)
        await added(four, 4)  # asked of the node that follows: sent on to the leader
        await world.until(lambda: voters(four) == [1, 4])

        assert four.node.endpoint_of(1) == place(1)

    run(scenario, voters=0)


def test_a_node_that_nobody_can_reach_is_not_let_in() -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1)
        four = await join(world, 4)
        await world.until(lambda: four.node.leader.leader_id == 1)
        await four.server.close()  # it goes on fetching
        response = await add(four, 4, timeout_ms=5000)
        assert response.error is ErrorCode.REQUEST_TIMED_OUT
        assert "nobody answers at host:4" in response.message

        done: asyncio.Future[VoterChangeResponse] = asyncio.get_running_loop().create_future()
        leader.node.voter_changes.add(ReplicaKey(4, disk(4)), place(1), done.set_result, 5000)
        assert "listens node 1, not node 4" in (await done).message
        assert voters(leader) == [1]

    run(scenario, voters=0)


def test_a_node_that_is_just_starting_is_waited_for_but_not_for_long() -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1)
        began = world.loop.time()
        refused = await add(leader, 4, timeout_ms=30_000)
        assert refused.error is ErrorCode.REQUEST_TIMED_OUT
        assert 5 <= world.loop.time() - began < 6.5  # not the time there is: its address may be mistyped

        asked = world.loop.create_task(add(leader, 4, timeout_ms=30_000))
        await asyncio.sleep(1)
        await join(world, 4)
        assert (await asked).error is ErrorCode.NONE

    run(scenario, voters=0)


def test_a_leader_that_is_removed_answers_and_another_takes_over() -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2, 3)
        asked = next(member for member in world.members.values() if member is not leader)
        await world.until(lambda: len(asked.node.describe().voters) == 3)
        response = await remove(asked, leader.id)
        successor = await world.leader(other_than=leader)

        assert response.error is ErrorCode.NONE
        assert leader.id not in voters(successor)
        await world.until(lambda: leader.node.leader.leader_id == successor.id)

    run(scenario, voters=0)


def test_restarted_nodes_keep_the_voters_of_the_log() -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2, 3)
        four = await join(world, 4)
        await added(leader, 4)
        await world.until(lambda: voters(four) == [1, 2, 3, 4])
        for member in world.members.values():
            await member.stop()
        for node in (1, 2, 3, 4):
            await join(world, node, initial_voters=formatted(1, 2, 3) if node < 4 else None)
        again = await world.leader()

        assert voters(again) == [1, 2, 3, 4]

    run(scenario, voters=0)


def test_a_voter_that_comes_back_elsewhere_says_so() -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2, 3)
        moved = next(member for member in world.members.values() if member is not leader)
        await world.until(lambda: len(moved.node.describe().voters) == 3)
        await moved.stop()
        there = Endpoint("elsewhere", moved.id)
        await start_elsewhere(world, moved, voters={}, is_voter=True, directory_id=disk(moved.id), endpoint=there)
        await world.until(lambda: leader.node.endpoint_of(moved.id) == there)

        assert voters(leader) == [1, 2, 3]

    run(scenario, voters=0)


def test_a_change_nobody_answers_ends_in_time() -> None:
    async def scenario(world: World) -> None:
        alone = await join(world, 1, initial_voters=formatted(1, 2))
        response = await remove(alone, 2, timeout_ms=50)
        assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "nobody leads" in response.message
        await alone.stop()

        leader = await start_dynamic(world, 1, 2)
        other = next(member for member in world.members.values() if member is not leader)
        await world.until(lambda: other.node.leader.leader_id == leader.id)
        await leader.server.close()
        response = await remove(other, leader.id, timeout_ms=50)
        assert response.error is ErrorCode.REQUEST_TIMED_OUT

    run(scenario, voters=0)


def test_who_hears_of_a_commit_that_a_removal_brought_may_append_after_the_voters() -> None:
    """Of the smaller set the leader alone is a majority."""

    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2)
        other = next(each for each in world.members.values() if each is not leader)
        heard, told = list[int](), leader.listener.on_commit

        def append_more(batch: CommittedBatch) -> None:
            told(batch)
            if b"first" in batch.records:
                heard.append(leader.node.append([b"second"], leader.node.leader.epoch))

        leader.listener.on_commit = append_more  # type: ignore[method-assign]  # the application
        await other.stop()  # a moment ago it was there
        synced = leader.log.active_file.syncs
        first = leader.node.append([b"first"], leader.node.leader.epoch)
        await world.until(lambda: leader.log.log_end_offset > first and leader.log.active_file.syncs > synced)
        assert (await remove(leader, other.id)).error is ErrorCode.NONE
        await world.until(lambda: leader.node.high_watermark > heard[0])
        assert leader.listener.records == [b"first", b"second"]
        assert leader.failures == []
        await leader.stop()

    run(scenario, voters=2)


def test_a_node_that_has_stopped_asks_nobody_any_more() -> None:
    """Its transport waits for every connection to be closed, and one that is made now nobody closes."""

    async def scenario(world: World) -> None:
        leader = await world.start()
        follower = next(member for member in world.members.values() if member is not leader)
        asking = asyncio.ensure_future(add(follower, 9, 3000))  # which is not there: it is asked again and again
        await world.until(lambda: any(each.address == ("host", 9) for each in world.switchboard.channels))
        await follower.stop()
        channels = len(world.switchboard.channels)
        await asyncio.sleep(1)
        later = [each for each in world.switchboard.channels[channels:] if each.address == ("host", leader.id)]
        assert later == []
        assert (await asking).error is not ErrorCode.NONE

    run(scenario)


def test_a_change_that_meets_an_election_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2, 3)
        four = await join(world, 4)
        await added(leader, 4)
        await world.until(lambda: voters(four) == [1, 2, 3, 4])
        await leader.stop()
        response = await remove(four, leader.id, timeout_ms=10_000)

        assert response.error is ErrorCode.NONE
        assert leader.id not in voters(four)

    run(scenario, voters=0)


@pytest.mark.parametrize("what", ["add_voter", "remove_voter"])
def test_a_change_whose_answer_was_lost_is_told_as_made(what: str) -> None:
    """Kafka's second attempt is told DUPLICATE_VOTER, or VOTER_NOT_FOUND."""

    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2, 3)
        four = await join(world, 4)
        if what == "remove_voter":
            await added(leader, 4)
        await world.until(lambda: four.node.leader.leader_id == leader.id)
        told: list[int] = []

        def lose_first(message: Any, reply: Any) -> None:
            def answer(response: Any) -> None:
                if message.WhichOneof("body") == what:
                    told.append(response.error_code)
                if told != [0]:
                    reply(response)
                else:
                    world.loop.create_task(break_streams())

            leader.node.handle_request(message, answer)

        async def break_streams() -> None:
            handlers = leader.server.handlers
            await leader.server.close()
            leader.server = await world.switchboard.serve("host", leader.id, handlers)

        leader.server.handlers = {QUORUM_SERVICE: lose_first}
        response = await (add if what == "add_voter" else remove)(four, 4, timeout_ms=5000)

        assert response.error is ErrorCode.NONE
        assert told[0] == 0

    run(scenario, voters=0)


def test_the_first_change_of_a_static_quorum_waits_until_everybody_reads_it() -> None:
    """kraft.version 1 comes with it, as of itself."""

    async def scenario(world: World) -> None:
        for node in (1, 2, 3):
            await join(world, node, voters=world.endpoints)
        leader = await world.leader()
        await world.until(lambda: len(voters(leader)) == 3 and leader.node.high_watermark > 0)
        asked: list[tuple[int, int]] = []

        def nobody(level: int, leaving: int) -> str:
            asked.append((level, leaving))
            if len(asked) == 1:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "not active yet")
            return "broker 9 is too old"

        leader.node.voter_changes.who_cannot_read = nobody
        four = await join(world, 4)
        await world.until(lambda: four.node.leader.leader_id == leader.id)
        refused = [await add(four, 4), await remove(leader, 2)]
        assert [each.error for each in refused] == [ErrorCode.UNSUPPORTED_VERSION] * 2
        assert refused[0].message == "broker 9 is too old"
        assert asked == [(1, -1), (1, -1), (1, 2)]
        assert leader.node.kraft_version == 0

        done: asyncio.Future[VoterChangeResponse] = asyncio.get_running_loop().create_future()
        leader.node.voter_changes.upgrade(done.set_result, validate_only=False)
        assert (await done).error is ErrorCode.NONE
        assert leader.node.kraft_version == 1
        await world.until(lambda: four.node.kraft_version == 1)
        await added(four, 4)
        assert voters(leader) == [1, 2, 3, 4]

    run(scenario)


def test_a_twin_is_told_in_one_line_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        for node in (1, 2, 3):
            await join(world, node, voters=world.endpoints)
        leader = await world.leader()
        last = leader.node.append([b"a"], leader.node.leader.epoch)
        await world.until(lambda: all(member.node.high_watermark > last for member in world.members.values()))
        victim = next(member.id for member in world.members.values() if member is not leader)
        twin = Member(world, 10 + victim)
        twin.id = victim
        await start_elsewhere(world, twin, directory_id=disk(99))
        await world.until(lambda: any("refuses this process" in text for text in caplog.messages))

        assert twin.node.high_watermark == 0
        assert disk(victim) in [each.directory_id for each in leader.node.describe().voters]
        assert len([text for text in caplog.messages if "refuses this process" in text]) == 1

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_the_leader_says_once_which_voters_disk_was_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2, 3)
        victim = next(member for member in world.members.values() if member is not leader)
        await world.until(lambda: len(victim.node.describe().voters) == 3)
        await victim.stop()
        wiped = Member(world, victim.id)
        world.members[victim.id] = wiped
        await join(world, victim.id, directory_id=disk(99))
        await world.until(lambda: any("is not what answers" in text for text in caplog.messages))
        await asyncio.sleep(5)

        told = [text for text in caplog.messages if "is not what answers" in text]
        words = f"remove-controller --controller-id {victim.id} --controller-directory-id {id_to_text(disk(victim.id))}"
        assert len(told) == 1
        assert words in told[0]
        assert any("this node does not vote" in text for text in caplog.messages)

    with caplog.at_level(logging.WARNING):
        run(scenario, voters=0)


async def start_elsewhere(world: World, member: Member, **settings: Any) -> None:
    """The node listens where nobody else does."""
    serve = world.switchboard.serve

    async def elsewhere(host: str, port: int, handlers: object) -> object:
        return await serve("elsewhere", port, handlers)  # type: ignore[arg-type]  # passed on as it came

    world.switchboard.serve = elsewhere  # type: ignore[method-assign, assignment]  # in the place of the real one
    await member.start(**settings)
    world.switchboard.serve = serve  # type: ignore[method-assign]  # in the place of the real one


def test_a_node_that_meets_a_kraft_version_it_does_not_read_stops_and_says_what_to_do() -> None:
    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2)
        other = next(member for member in world.members.values() if member is not leader)
        await other.stop()
        await world.until(lambda: leader.node.high_watermark > 0)
        end = leader.log.log_end_offset
        epoch = leader.node.leader.epoch
        leader.log.append_as_follower(bytes(control_batch(AppendControl(end, epoch, (KRaftVersion(2),)), 0)), epoch)
        await leader.stop()
        await join(world, other.id, initial_voters=formatted(1, 2))
        with pytest.raises(UnreadableLevelError, match="upgrade it"):
            await join(world, leader.id, initial_voters=formatted(1, 2))

    run(scenario, voters=0)


def test_initial_voters_are_read_as_they_were_written(tmp_path: object) -> None:
    directory = str(tmp_path)
    write_initial_voters(RealDisk(), directory, formatted(1, 2))

    assert read_initial_voters(RealDisk(), directory) == formatted(1, 2)


def test_what_was_given_offsets_comes_before_a_change_of_voters() -> None:
    """They wait for the turn's end, and the new voter set does not."""

    async def scenario(world: World) -> None:
        leader = await start_dynamic(world, 1, 2, 3)
        other = next(node for node in (1, 2, 3) if node != leader.id)
        last = leader.node.append([b"a", b"b"], leader.node.leader.epoch)
        response = await remove(leader, other)

        assert response.error is ErrorCode.NONE
        assert not leader.failures
        await world.until(lambda: leader.listener.records == [b"a", b"b"])
        assert [batch.last_offset for batch in leader.listener.batches if batch.records] == [last]
        assert leader.node.high_watermark == last + 2, "the records, and then the voters"

    run(scenario)
