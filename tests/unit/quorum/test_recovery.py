"""A node that goes on alone when most voters are lost: what it writes, and that a start makes a quorum of it."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.quorum import recovery
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.log_start import voter_history
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.recovery import Survivor
from ottla.quorum.synced_mark import SyncedMark
from tests.unit.quorum.node_world import Member, World, run

OWN = Voter(ReplicaKey(1, b"d" * 16), Endpoint("host", 1))
FORMATTED = VoterSet.of(Voter(ReplicaKey(number), Endpoint("host", number)) for number in (1, 2, 3))


def elections(member: Member) -> ElectionStore:
    return ElectionStore(member.store, "test", member.id)


def survey(member: Member) -> Survivor:
    return recovery.survey(member.log, None, elections(member), FORMATTED)


def recover(member: Member) -> int:
    mark = SyncedMark(member.store)
    return recovery.become_only_voter(member.log, elections(member), mark, survey(member), OWN, 1_700_000_000_000)


def after_a_life(then: Callable[[World, Member], Coroutine[Any, Any, None]]) -> None:
    """Three voters that committed a record have stopped; only the first comes back."""

    async def scenario(world: World) -> None:
        leader = await world.start()
        last = leader.node.append([b"kept"], leader.node.leader.epoch)
        for member in world.members.values():
            await world.committed(member, last)
        for member in world.members.values():
            await member.stop()
        world.members = {1: world.members[1]}
        await then(world, world.members[1])

    run(scenario)


def test_a_recovered_node_leads_alone_and_has_what_it_had() -> None:
    async def then(world: World, member: Member) -> None:
        epoch = recover(member)
        await member.start(directory_id=b"d" * 16)
        assert await world.leader() is member
        assert member.node.leader.epoch >= epoch
        last = member.node.append([b"more"], member.node.leader.epoch)
        await world.committed(member, last)
        assert member.listener.records == [b"kept", b"more"]
        await member.stop()

    after_a_life(then)


def test_a_recovered_node_leads_whoever_followed_the_lost_ones_to_later_epochs() -> None:
    async def then(world: World, member: Member) -> None:
        ahead = Member(world, 9)
        elections(ahead).save(ElectionState(survey(member).promised_epoch + 5, 2))
        recover(member)
        await member.start(directory_id=b"d" * 16)
        await ahead.start(is_voter=False, bootstrap=(Endpoint("host", 1),))
        await world.until(lambda: b"kept" in ahead.listener.records)
        assert ahead.node.leader.leader_id == 1
        assert ahead.failures == []
        await ahead.stop()
        await member.stop()

    after_a_life(then)


def test_without_recovery_it_waits_for_the_others() -> None:
    async def then(world: World, member: Member) -> None:
        await member.start()
        with pytest.raises(AssertionError, match="did not come to pass"):
            await world.leader()
        await member.stop()

    after_a_life(then)


def test_the_epoch_is_one_that_this_node_never_promised_anybody() -> None:
    async def then(world: World, member: Member) -> None:
        elections(member).save(ElectionState(70, None, ReplicaKey(2)))
        assert recover(member) == 71
        assert elections(member).load(1) == ElectionState(71, None, OWN.key)
        assert member.log.epochs.entries()[-1][0] == 71

    after_a_life(then)


def test_the_log_names_the_node_alone_and_is_known_to_be_stable() -> None:
    async def then(world: World, member: Member) -> None:
        before = survey(member)
        recover(member)
        history = voter_history(member.log, FORMATTED, None)
        assert (history.latest, history.latest_offset) == (VoterSet.of([OWN]), before.end_offset)
        assert SyncedMark(member.store).offset == member.log.log_end_offset
        assert survey(member).voters.ids() == (1,)

    after_a_life(then)


def test_one_that_died_before_the_log_was_written_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(world: World, member: Member) -> None:
        end = member.log.log_end_offset

        def fail(*_: object) -> None:
            raise OSError("no space")

        with monkeypatch.context() as patched:
            patched.setattr(member.log, "append_as_follower", fail)
            with pytest.raises(OSError, match="no space"):
                recover(member)
        promised = elections(member).load(end).epoch
        assert (member.log.log_end_offset, survey(member).voters.ids()) == (end, (1, 2, 3))
        assert recover(member) == promised + 1
        await member.start(directory_id=b"d" * 16)
        assert await world.leader() is member
        await member.stop()

    after_a_life(then)


def test_of_two_survivors_the_one_with_more_is_told_by_epoch_and_end() -> None:
    async def then(world: World, member: Member) -> None:
        found = survey(member)
        assert (found.last_epoch, found.end_offset) == (
            member.log.epochs.entries()[-1][0],
            member.log.log_end_offset,
        )
        assert found.last_ms == 1_700_000_000_000

    after_a_life(then)


@pytest.mark.parametrize("again", [1, 2])
def test_who_follows_a_recovered_node_keeps_what_it_has_when_either_is_started_again(
    again: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The node leads the epoch that the recovery began, so two records of it have a mark. The first one counts."""
    settings: dict[int, dict[str, Any]] = {
        1: {"directory_id": b"d" * 16},
        2: {"directory_id": b"e" * 16, "voters": {}, "is_voter": True, "bootstrap": (OWN.endpoint,)},
    }

    async def then(world: World, member: Member) -> None:
        caplog.set_level("INFO")
        recover(member)
        await member.start(**settings[1])
        await world.leader()
        other = world.members[2] = Member(world, 2)
        await other.start(**settings[2])
        await world.committed(other, member.node.append([b"before"], member.node.leader.epoch))
        await world.members[again].stop()
        await world.members[again].start(**settings[again])
        await world.leader()
        await world.committed(other, member.node.append([b"after"], member.node.leader.epoch))
        assert other.failures == []
        assert "truncating" not in caplog.text
        await other.stop()
        await member.stop()

    after_a_life(then)
