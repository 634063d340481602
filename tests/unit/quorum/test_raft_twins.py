"""Who is not taken for a voter, though it has its number, and who keeps the leader in office."""

import itertools
from unittest.mock import patch

from ottla.quorum.describe import describe_quorum
from ottla.quorum.listener import ReplicaDescription
from ottla.quorum.raft import rules
from ottla.quorum.raft.events import (
    AppendRequested,
    ResponseReceived,
    Ticked,
    TimerExpired,
)
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import (
    BatchInfo,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
)
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.membership_bench import FETCH_TIMEOUT_MS, LeadingReplica, Replica, logged, refused
from tests.unit.quorum.raft_core import CLUSTER, endpoint, formatted, key, voter_set


def test_a_twin_of_a_living_voter_is_refused() -> None:  # ours: static voters have no directory ids
    leader = LeadingReplica(voter_set(1, 2, 3))
    before = leader.core.state.log.end
    twin = key(2, disk=1)

    assert refused(leader.fetches(twin), ErrorCode.DUPLICATE_VOTER)
    snapshot = FetchSnapshotRequest(
        cluster_id=CLUSTER, epoch=1, sender=twin, snapshot=OffsetAndEpoch(1, 1), position=0, max_bytes=1
    )
    assert refused(leader.response_to(snapshot), ErrorCode.DUPLICATE_VOTER)
    role = leader.core.state.role
    assert isinstance(role, Leader)
    assert (role.voters[2].key, role.voters[2].end_offset) == (key(2), before)


def test_without_the_rule_a_twin_acknowledges_in_the_voters_place() -> None:
    """What `rules.is_twin` is for: the record seems to be on both voters, and voter 2 never saw it."""
    leader = LeadingReplica(voter_set(1, 2))
    before = leader.core.state.high_watermark
    leader.tell(AppendRequested(1, b"a", (BatchInfo(before, before, 1),)))
    leader.fetches(key(2, disk=1))
    assert leader.core.state.high_watermark == before
    with patch.object(rules, "is_twin", lambda *_: False):
        leader.fetches(key(2, disk=1))

    assert leader.core.state.high_watermark == before + 1


def test_a_twin_of_the_leader_is_refused() -> None:
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.wait(10 * FETCH_TIMEOUT_MS)

    assert refused(leader.fetches(key(1, disk=1)), ErrorCode.DUPLICATE_VOTER)


def test_a_voter_whose_disk_was_replaced_takes_its_place_when_the_old_one_is_silent() -> None:
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.tell(TimerExpired(Timer.BEGIN_QUORUM))
    leader.fetches(key(2, disk=1), offset=0)
    role = leader.core.state.role

    assert isinstance(role, Leader)
    assert role.voters[2].key == key(2, disk=1)
    assert refused(leader.fetches(key(2)), ErrorCode.DUPLICATE_VOTER)


def test_who_answers_where_a_voter_listens_is_that_voter() -> None:
    """A twin that fetches from a new leader first is found out as soon as the voter answers the leader's greeting."""
    leader = LeadingReplica(voter_set(1, 2, 3))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.voters[2].key = key(2, disk=1)
    role.voters[2].knows_leader = False
    greeting = next(
        each for each in leader.sent if isinstance(each.request, BeginQuorumEpochRequest) and each.peer == 2
    )
    leader.core.state.inflight[2, BeginQuorumEpochRequest.__name__] = greeting.request
    response = BeginQuorumEpochResponse(epoch=1, leader_id=1, voter=key(2))
    leader.tell(ResponseReceived(2, greeting.request, response))

    assert (role.voters[2].key, role.voters[2].end_offset) == (key(2), -1)
    assert refused(leader.fetches(key(2, disk=1)), ErrorCode.DUPLICATE_VOTER)


def test_a_refused_twin_asks_ever_less_often() -> None:  # ours: a person has to do something about it
    twin = Replica(voter_set(1, 2, 3), node=3)
    begin = BeginQuorumEpochRequest(cluster_id=CLUSTER, epoch=1, sender=key(2), receiver=key(3), endpoint=endpoint(2))
    twin.response_to(begin)
    refused_at = []
    while twin.now_ms < FETCH_TIMEOUT_MS - 1:
        asked = twin.sent[-1]
        if isinstance(asked.request, FetchRequest) and twin.core.state.awaited(2, asked.request) is asked.request:
            refused_at.append(twin.now_ms)
            answer = FetchResponse(error=ErrorCode.DUPLICATE_VOTER, epoch=1, leader_id=2, leader_endpoint=endpoint(2))
            twin.tell(ResponseReceived(2, asked.request, answer))
        twin.wait(1)
        twin.tell(Ticked())

    pauses = [after - before for before, after in itertools.pairwise(refused_at)]
    assert pauses == [20, 40, 80, 160, 320, 640]


def test_a_leader_greets_a_replaced_disk_ever_less_often() -> None:  # INVALID_VOTER_KEY; Kafka: twice a fetch timeout
    leader = LeadingReplica(formatted(1, 2, 3))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.tell(TimerExpired(Timer.BEGIN_QUORUM))
    greeted = 0
    for _ in range(FETCH_TIMEOUT_MS):
        asked = leader.core.state.inflight.get((2, BeginQuorumEpochRequest.__name__))
        if asked is not None:
            greeted += 1
            answer = BeginQuorumEpochResponse(error=ErrorCode.INVALID_VOTER_KEY, epoch=1, leader_id=1)
            leader.tell(ResponseReceived(2, asked, answer))
        leader.wait(1)
        leader.fetches(key(3))
        leader.tell(Ticked())

    assert greeted == 7
    leader.wait(FETCH_TIMEOUT_MS // 2)
    leader.tell(Ticked())
    asked = leader.core.state.inflight[2, BeginQuorumEpochRequest.__name__]
    leader.tell(ResponseReceived(2, asked, BeginQuorumEpochResponse(epoch=1, leader_id=1, voter=key(2))))
    assert leader.core.state.pauses == {}


def test_an_automatic_join_does_not_remove_a_voter_that_lives() -> None:  # ours: a twin with auto-join would
    leader = logged(1, 2, 3)

    assert refused(leader.removes(key(2), sender=key(2, disk=1)), ErrorCode.DUPLICATE_VOTER, "lives")
    leader.wait(FETCH_TIMEOUT_MS)
    leader.tell(TimerExpired(Timer.BEGIN_QUORUM))
    leader.fetches(key(3))
    assert leader.removes(key(2), sender=key(2, disk=1)) is None
    assert leader.voters == (1, 3)


def test_only_the_voters_own_disk_keeps_the_leader_in_office() -> None:  # kraft.md 1.7
    """Another directory under a voter's node id is an observer, also while it reads a snapshot."""
    leader = logged(1, 2, 3)
    leader.wait(FETCH_TIMEOUT_MS)
    leader.tell(TimerExpired(Timer.BEGIN_QUORUM))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.heard_from.clear()
    before = leader.core.state.timers[Timer.CHECK_QUORUM]
    place = OffsetAndEpoch(1, 1)
    sender = key(2, disk=1)
    leader.response_to(
        FetchSnapshotRequest(cluster_id=CLUSTER, epoch=1, sender=sender, snapshot=place, position=0, max_bytes=1)
    )
    assert (leader.core.state.timers[Timer.CHECK_QUORUM], role.heard_from) == (before, {})

    leader.response_to(
        FetchSnapshotRequest(cluster_id=CLUSTER, epoch=1, sender=key(2), snapshot=place, position=0, max_bytes=1)
    )
    assert leader.core.state.timers[Timer.CHECK_QUORUM] > before


def test_a_copy_of_the_leaders_own_disk_does_not_keep_it_in_office() -> None:
    """It counts itself already: with one other of five, and its copy, it had a majority."""
    leader = logged(1, 2, 3, 4, 5)
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.heard_from.clear()
    place = OffsetAndEpoch(1, 1)
    leader.response_to(
        FetchSnapshotRequest(cluster_id=CLUSTER, epoch=1, sender=key(1), snapshot=place, position=0, max_bytes=1)
    )
    assert role.heard_from == {}


def test_observers_that_went_away_are_forgotten() -> None:  # kraft.md 1.5
    leader = logged(1)
    leader.fetches(key(4))
    assert [each.id for each in described(leader)] == [4]
    leader.wait(leader.core.state.settings.observer_session_ms)

    assert described(leader) == []


def test_a_broker_that_turned_to_a_follower_is_no_observer_of_the_leader() -> None:
    """It asked the leader in need; how far it is by now, the leader does not know."""
    leader = logged(1, 2)
    leader.fetches(key(4), can_vote=False)
    leader.fetches(key(5))
    leader.wait(2 * FETCH_TIMEOUT_MS)

    assert [each.id for each in described(leader)] == [5]


def test_a_voter_that_was_removed_because_it_is_gone_is_no_observer() -> None:
    leader = logged(1, 2, 3, 4)
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(2))
    leader.fetches(key(3))
    leader.removes(key(4))
    assert (leader.voters, described(leader)) == ((1, 2, 3), [])
    leader.fetches(key(2))
    leader.fetches(key(3))
    leader.removes(key(3))
    assert [each.id for each in described(leader)] == [3], "it lives"


def described(leader: Replica) -> list[ReplicaDescription]:
    return describe_quorum(leader.core.state, leader.now_ms, leader.now_ms).observers
