"""Voters come and go (KIP-853; kraft.md 1.11), and who is not taken for one."""

import itertools
from random import Random
from typing import Any
from unittest.mock import patch

from ottla.quorum.describe import describe_quorum
from ottla.quorum.listener import ReplicaDescription
from ottla.quorum.raft import rules
from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    AppendRequested,
    LogSynced,
    RequestReceived,
    ResponseReceived,
    Started,
    Ticked,
    TimerExpired,
    UpgradeRequested,
)
from ottla.quorum.raft.instructions import (
    AppendControl,
    Instruction,
    KRaftVersion,
    ReadAndRespond,
    Respond,
    SendRequest,
    Voters,
)
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    BatchInfo,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode

FETCH_TIMEOUT_MS = RaftSettings(cluster_id="c").fetch_timeout_ms
SOMEBODY = ReplicaKey(-1)
ADMINISTRATOR: dict[str, Any] = {"cluster_id": "c", "epoch": 0, "sender": SOMEBODY}


def key(node: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node, bytes([node + 100 * disk]) * 16)


def endpoint(node: int) -> Endpoint:
    return Endpoint(f"host-{node}", 9093)


def static(*nodes: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(node), endpoint(node)) for node in nodes)


def formatted(*nodes: int) -> VoterSet:
    """As `storage format --initial-controllers` leaves it: with directories."""
    return VoterSet.of(Voter(key(node), endpoint(node)) for node in nodes)


class Replica:
    """One core. What it sends is answered by hand; what it syncs is durable at once."""

    def __init__(self, voters: VoterSet, node: int = 1, at: Endpoint | None = None, **settings: Any) -> None:
        core_settings = RaftSettings(cluster_id="c", **settings)
        own = (key(node), at or endpoint(node))
        self.core = RaftCore(core_settings, *own, Random(1), LogSummary(), VoterHistory(voters), ElectionState())
        self.now_ms = 0
        self.sent: list[SendRequest] = []
        self.appended: list[AppendControl] = []
        self.answers: dict[object, Response] = {}
        self.handle(Started())

    def handle(self, event: Any) -> None:
        self._perform(self.core.handle(event, self.now_ms))
        if self.core.state.log.durable_end < self.core.state.log.end:
            self._perform(self.core.handle(LogSynced(self.core.state.log.end), self.now_ms))

    def _perform(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, SendRequest):
                self.sent.append(instruction)
            elif isinstance(instruction, AppendControl):
                self.appended.append(instruction)
            elif isinstance(instruction, Respond | ReadAndRespond):
                self.answers[instruction.token] = instruction.response

    def ask(self, request: Any) -> Response | None:
        """The answer, or None while there is none."""
        token = object()
        self.handle(RequestReceived(request, token))
        return self.answers.get(token)

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @property
    def voters(self) -> tuple[int, ...]:
        return self.core.state.voters.latest.ids()


class LeadingReplica(Replica):
    """Node 1, elected by all, with everything committed."""

    def __init__(self, voters: VoterSet, **arguments: Any) -> None:
        super().__init__(voters, **arguments)
        if len(voters) > 1:
            self.handle(TimerExpired(Timer.ELECTION))
        for _ in range(2):  # pre-votes, votes
            for send in [each for each in self.sent if isinstance(each.request, VoteRequest)]:
                response = VoteResponse(granted=True, epoch=send.request.epoch)
                self.handle(ResponseReceived(send.peer, send.request, response))
        assert isinstance(self.core.state.role, Leader)
        for voter in voters.others(1):
            self.fetches(key(voter.key.id))

    def fetches(self, sender: ReplicaKey, *, offset: int | None = None, can_vote: bool = True) -> Response | None:
        state = self.core.state
        place = state.log.end if offset is None else offset
        return self.ask(
            FetchRequest(
                cluster_id="c",
                epoch=state.epoch,
                sender=sender,
                offset=place,
                last_epoch=state.epoch if place else 0,
                high_watermark=state.high_watermark,
                max_wait_ms=500,
                max_bytes=1000,
                can_vote=can_vote,
            )
        )

    def adds(self, voter: ReplicaKey) -> Response | None:
        return self.ask(AddVoterRequest(voter=voter, endpoint=endpoint(voter.id), **ADMINISTRATOR))

    def removes(self, voter: ReplicaKey, sender: ReplicaKey = SOMEBODY) -> Response | None:
        return self.ask(RemoveVoterRequest(voter=voter, **{**ADMINISTRATOR, "sender": sender}))

    def upgrades(self, *, validate_only: bool = False) -> Response | None:
        token = object()
        self.handle(UpgradeRequested(token, validate_only))
        return self.answers.get(token)

    def moves(self, sender: ReplicaKey, to: Endpoint, epoch: int | None = None) -> Response | None:
        at = self.core.state.epoch if epoch is None else epoch
        return self.ask(UpdateVoterRequest(endpoint=to, cluster_id="c", epoch=at, sender=sender))


def refused(response: Response | None, error: ErrorCode, *words: str) -> bool:
    message = getattr(response, "message", "")
    return response is not None and response.error is error and all(word in message for word in words)


# --- adding -----------------------------------------------------------------------------------------------------------


def test_an_observer_that_has_caught_up_becomes_a_voter_when_that_is_committed() -> None:  # KIP-853
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4))
    token = object()
    request = AddVoterRequest(voter=key(4), endpoint=endpoint(4), **ADMINISTRATOR)
    leader.handle(RequestReceived(request, token))

    assert leader.voters == (1, 2, 3, 4)
    assert token not in leader.answers
    leader.fetches(key(2))
    assert token not in leader.answers  # two of four
    leader.fetches(key(4))
    assert leader.answers[token].error is ErrorCode.NONE


def test_the_first_change_of_a_static_quorum_writes_the_directories_of_all() -> None:  # KIP-853
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4))
    leader.adds(key(4))

    assert leader.appended[-1].records == (KRaftVersion(1), Voters(formatted(1, 2, 3, 4)))
    leader.fetches(key(2))
    leader.fetches(key(3))
    leader.removes(key(4))
    assert [type(each) for each in leader.appended[-1].records] == [Voters]


def test_who_does_not_want_to_wait_is_answered_when_the_change_is_in_force() -> None:  # AckWhenCommitted=false
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4))
    request = AddVoterRequest(voter=key(4), endpoint=endpoint(4), ack_when_committed=False, **ADMINISTRATOR)
    answer = leader.ask(request)

    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert leader.voters == (1, 2, 3, 4)


def test_a_voter_is_not_added_twice() -> None:  # kraft.md 1.11
    leader = LeadingReplica(static(1, 2, 3))

    assert refused(leader.adds(key(2)), ErrorCode.DUPLICATE_VOTER, "is a voter already")
    assert refused(leader.adds(key(2, disk=1)), ErrorCode.DUPLICATE_VOTER, "remove that voter first")


def test_a_node_that_does_not_fetch_is_not_added() -> None:  # kraft.md 1.11
    leader = LeadingReplica(static(1, 2, 3))

    assert refused(leader.adds(key(4)), ErrorCode.REQUEST_TIMED_OUT, "start it as controller")


def test_a_node_that_went_away_again_is_not_added() -> None:  # ours; KIP-853 takes who fetched within the hour
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(2))
    leader.fetches(key(3))

    assert refused(leader.adds(key(4)), ErrorCode.REQUEST_TIMED_OUT, "start it as controller")


def test_a_node_that_has_not_caught_up_is_not_added() -> None:  # kraft.md 1.11
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4), offset=0)

    assert refused(leader.adds(key(4)), ErrorCode.REQUEST_TIMED_OUT, "has not caught up")


def test_a_plain_broker_is_not_added() -> None:  # ours: it syncs nothing of what it would acknowledge
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4), can_vote=False)

    assert refused(leader.adds(key(4)), ErrorCode.INVALID_REQUEST, "is no controller")


def test_a_node_is_not_added_under_a_directory_it_has_not() -> None:  # KIP-853
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4))

    assert refused(leader.adds(key(4, disk=1)), ErrorCode.REQUEST_TIMED_OUT, "another directory id")


def test_changes_wait_for_the_one_before() -> None:  # D 4.1
    leader = LeadingReplica(static(1, 2, 3))
    leader.fetches(key(4))
    leader.fetches(key(5))
    leader.adds(key(4))

    assert refused(leader.adds(key(5)), ErrorCode.REQUEST_TIMED_OUT, "another change")


def test_a_change_that_could_not_be_committed_is_refused() -> None:  # ours; etcd's strict reconfiguration check
    leader = LeadingReplica(static(1, 2, 3))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(2))  # node 3 is gone

    assert refused(leader.removes(key(2)), ErrorCode.REQUEST_TIMED_OUT, "1, 3 most", "start them")
    assert leader.removes(key(3)) is None
    assert leader.voters == (1, 2)


def test_who_waits_for_a_change_is_told_when_the_leader_goes() -> None:
    leader = LeadingReplica(static(1, 2, 3))
    token = object()
    leader.handle(RequestReceived(RemoveVoterRequest(voter=key(3), **ADMINISTRATOR), token))
    leader.handle(TimerExpired(Timer.CHECK_QUORUM))

    assert refused(leader.answers[token], ErrorCode.NOT_LEADER_OR_FOLLOWER, "whether it was made")
    assert getattr(leader.answers[token], "undecided", False)


def test_only_the_leader_changes_voters() -> None:  # kraft.md 1.4
    follower = Replica(static(1, 2, 3))
    request = BeginQuorumEpochRequest(cluster_id="c", epoch=1, sender=key(2), receiver=key(1), endpoint=endpoint(2))
    follower.ask(request)
    answer = follower.ask(RemoveVoterRequest(voter=key(3), **ADMINISTRATOR))

    assert refused(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answer is not None
    assert (answer.leader_id, answer.leader_endpoint) == (2, endpoint(2))


def test_another_clusters_administrator_is_refused() -> None:  # kraft.md 1.4
    leader = LeadingReplica(static(1, 2, 3))
    request = RemoveVoterRequest(voter=key(2), **{**ADMINISTRATOR, "cluster_id": "other"})

    assert refused(leader.ask(request), ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert leader.voters == (1, 2, 3)


def adds_again(leader: LeadingReplica, voter: ReplicaKey, at: Endpoint) -> Response | None:
    return leader.ask(AddVoterRequest(voter=voter, endpoint=at, asked_before=True, **ADMINISTRATOR))


def test_who_does_not_know_whether_it_was_added_is_told_yes() -> None:  # ours; Kafka says DUPLICATE_VOTER
    leader = LeadingReplica(formatted(1, 2, 3))

    assert refused(adds_again(leader, key(2), endpoint(2)), ErrorCode.NONE)
    assert refused(adds_again(leader, key(2, disk=1), endpoint(2)), ErrorCode.DUPLICATE_VOTER)
    assert refused(adds_again(leader, key(2), Endpoint("other", 1)), ErrorCode.DUPLICATE_VOTER)


def test_a_repetition_is_answered_when_the_change_is_committed() -> None:
    leader = LeadingReplica(formatted(1, 2, 3))
    leader.fetches(key(4))
    leader.adds(key(4))
    answer = adds_again(leader, key(4), endpoint(4))

    assert refused(answer, ErrorCode.REQUEST_TIMED_OUT, "not committed yet")
    assert getattr(answer, "try_again", False)
    leader.fetches(key(2))
    leader.fetches(key(3))
    assert refused(adds_again(leader, key(4), endpoint(4)), ErrorCode.NONE)


def test_who_does_not_know_whether_it_was_removed_is_told_yes() -> None:  # ours; Kafka says VOTER_NOT_FOUND
    leader = LeadingReplica(formatted(1, 2, 3))

    def again(voter: ReplicaKey) -> Response | None:
        return leader.ask(RemoveVoterRequest(voter=voter, asked_before=True, **ADMINISTRATOR))

    assert refused(again(key(9)), ErrorCode.NONE)
    assert refused(again(key(2, disk=1)), ErrorCode.VOTER_NOT_FOUND)
    assert again(key(2)) is None
    assert leader.voters == (1, 3)


# --- removing ---------------------------------------------------------------------------------------------------------


def test_a_voter_is_removed_by_node_and_directory() -> None:  # kraft.md 1.11
    leader = LeadingReplica(static(1, 2, 3))

    assert refused(leader.removes(key(2, disk=1)), ErrorCode.VOTER_NOT_FOUND, "another directory id")
    assert refused(leader.removes(ReplicaKey(2)), ErrorCode.VOTER_NOT_FOUND, "another directory id")
    assert refused(leader.removes(key(7)), ErrorCode.VOTER_NOT_FOUND, "the voters are 1, 2, 3")
    leader.removes(key(2))
    assert leader.voters == (1, 3)


def test_a_voter_that_never_showed_its_directory_is_removed_without() -> None:  # a static quorum with a dead member
    leader = LeadingReplica(static(1, 2, 3))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.voters[3].key = ReplicaKey(3)
    leader.removes(ReplicaKey(3))

    assert leader.voters == (1, 2)


def test_the_last_voter_stays() -> None:  # kraft.md 1.11
    leader = LeadingReplica(formatted(1))

    assert refused(leader.removes(key(1)), ErrorCode.VOTER_NOT_FOUND, "last voter")


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:  # D 4.2.2
    leader = LeadingReplica(static(1, 2, 3))
    token = object()
    leader.handle(RequestReceived(RemoveVoterRequest(voter=key(1), **ADMINISTRATOR), token))

    assert isinstance(leader.core.state.role, Leader)
    leader.fetches(key(2))
    assert token not in leader.answers  # one of the two that count now
    leader.fetches(key(3))
    assert leader.answers[token].error is ErrorCode.NONE
    assert isinstance(leader.core.state.role, Resigned)


# --- moving -----------------------------------------------------------------------------------------------------------


def logged(*nodes: int) -> LeadingReplica:
    """A leader whose voter set stands in the log."""
    leader = LeadingReplica(formatted(*nodes))
    assert leader.core.state.voters.latest_offset >= 0
    return leader


def test_a_voter_says_where_it_listens_now() -> None:  # KIP-853
    leader = logged(1, 2, 3)
    leader.moves(key(2), Endpoint("elsewhere", 1))

    assert leader.core.state.voters.latest.endpoint(2) == Endpoint("elsewhere", 1)


def test_what_a_voter_said_in_an_earlier_epoch_moves_nothing() -> None:  # kraft.md 1.4
    leader = logged(1, 2, 3)

    assert refused(leader.moves(key(2), Endpoint("old", 1), epoch=0), ErrorCode.FENCED_LEADER_EPOCH)
    assert leader.core.state.voters.latest.endpoint(2) == endpoint(2)


def test_saying_the_same_again_writes_nothing() -> None:
    leader = logged(1, 2, 3)
    before = len(leader.appended)
    answer = leader.moves(key(2), endpoint(2))

    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert len(leader.appended) == before


def test_a_wiped_voter_moves_nothing() -> None:  # KIP-853
    leader = logged(1, 2, 3)
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(3))
    leader.core.state.role.voters[2].knows_leader = False  # type: ignore[union-attr]

    assert refused(leader.moves(key(2, disk=1), Endpoint("elsewhere", 1)), ErrorCode.VOTER_NOT_FOUND)


# --- a new leader and the voter set -----------------------------------------------------------------------------------


def test_the_first_leader_of_a_formatted_quorum_writes_the_voters() -> None:  # kraft.md 1.9
    leader = LeadingReplica(formatted(1, 2, 3))

    assert leader.appended[0].records[1:] == (KRaftVersion(1), Voters(formatted(1, 2, 3)))
    assert leader.core.state.voters.latest_offset == 0


def test_a_static_quorum_stays_out_of_the_log() -> None:  # kraft.md 1.11
    leader = LeadingReplica(static(1, 2, 3))

    assert len(leader.appended[0].records) == 1
    assert leader.core.state.voters.latest_offset == -1


# --- kraft.version ------------------------------------------------------------------------------------------------------


def test_an_upgrade_writes_the_voters_of_a_static_quorum_as_they_are() -> None:  # KIP-853; kraft.md 1.11
    leader = LeadingReplica(static(1, 2, 3))
    assert leader.core.state.voters.kraft_version == 0
    token = object()
    leader.handle(UpgradeRequested(token))

    assert leader.appended[-1].records == (KRaftVersion(1), Voters(formatted(1, 2, 3)))
    assert token not in leader.answers
    assert leader.core.state.voters.kraft_version_at(leader.core.state.high_watermark) == 0
    leader.fetches(key(3))
    assert leader.answers[token].error is ErrorCode.NONE
    assert leader.core.state.voters.kraft_version_at(leader.core.state.high_watermark) == 1


def test_an_upgrade_that_is_only_tried_writes_nothing() -> None:
    leader = LeadingReplica(static(1, 2, 3))
    before = len(leader.appended)

    assert refused(leader.upgrades(validate_only=True), ErrorCode.NONE)
    assert (len(leader.appended), leader.core.state.voters.kraft_version) == (before, 0)


def test_an_upgrade_that_was_made_is_not_made_again() -> None:
    leader = LeadingReplica(formatted(1, 2, 3))
    before = len(leader.appended)

    assert refused(leader.upgrades(), ErrorCode.NONE)
    assert len(leader.appended) == before


def test_an_upgrade_needs_the_directory_of_every_voter() -> None:  # KIP-853
    leader = LeadingReplica(static(1, 2, 3))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.voters[3].key = ReplicaKey(3)

    assert refused(leader.upgrades(), ErrorCode.INVALID_UPDATE_VERSION, "voters 3 never told", "start them")


def test_only_the_leader_upgrades() -> None:
    follower = Replica(static(1, 2, 3))
    follower.handle(UpgradeRequested(1))

    assert refused(follower.answers[1], ErrorCode.NOT_LEADER_OR_FOLLOWER, "does not lead")


def test_the_voters_of_the_settings_do_not_move_by_themselves() -> None:  # kraft.version 0
    leader = LeadingReplica(static(1, 2, 3))

    assert refused(
        leader.moves(key(2), Endpoint("elsewhere", 1)), ErrorCode.UNSUPPORTED_VERSION, "controller.quorum.voters"
    )
    assert leader.core.state.voters.latest_offset == -1


def test_a_cut_log_takes_the_upgrade_back() -> None:
    history = VoterHistory(static(1, 2, 3))
    history.append(7, formatted(1, 2, 3))
    assert (history.kraft_version, history.kraft_version_at(7), history.kraft_version_at(8)) == (1, 0, 1)
    history.truncate(7)
    assert history.kraft_version == 0
    assert VoterHistory(formatted(1)).kraft_version_at(0) == 1
    assert VoterHistory(VoterSet()).kraft_version == 0


def test_a_leader_that_moved_writes_where_it_listens() -> None:  # kraft.md 1.9
    leader = LeadingReplica(formatted(1, 2, 3), at=Endpoint("moved", 7))

    assert leader.core.state.voters.latest.endpoint(1) == Endpoint("moved", 7)
    assert leader.voters == (1, 2, 3)


# --- twins ------------------------------------------------------------------------------------------------------------


def test_a_twin_of_a_living_voter_is_refused() -> None:  # ours: static voters have no directory ids
    leader = LeadingReplica(static(1, 2, 3))
    before = leader.core.state.log.end
    twin = key(2, disk=1)

    assert refused(leader.fetches(twin), ErrorCode.DUPLICATE_VOTER)
    snapshot = FetchSnapshotRequest(
        cluster_id="c", epoch=1, sender=twin, snapshot=OffsetAndEpoch(1, 1), position=0, max_bytes=1
    )
    assert refused(leader.ask(snapshot), ErrorCode.DUPLICATE_VOTER)
    role = leader.core.state.role
    assert isinstance(role, Leader)
    assert (role.voters[2].key, role.voters[2].end_offset) == (key(2), before)


def test_without_the_rule_a_twin_acknowledges_in_the_voters_place() -> None:
    """What `rules.is_twin` is for: the record seems to be on both voters, and voter 2 never saw it."""
    leader = LeadingReplica(static(1, 2))
    before = leader.core.state.high_watermark
    leader.handle(AppendRequested(1, b"a", (BatchInfo(before, before, 1),)))
    leader.fetches(key(2, disk=1))
    assert leader.core.state.high_watermark == before
    with patch.object(rules, "is_twin", lambda *_: False):
        leader.fetches(key(2, disk=1))

    assert leader.core.state.high_watermark == before + 1


def test_a_twin_of_the_leader_is_refused() -> None:
    leader = LeadingReplica(static(1, 2, 3))
    leader.wait(10 * FETCH_TIMEOUT_MS)

    assert refused(leader.fetches(key(1, disk=1)), ErrorCode.DUPLICATE_VOTER)


def test_a_voter_whose_disk_was_replaced_takes_its_place_when_the_old_one_is_silent() -> None:
    leader = LeadingReplica(static(1, 2, 3))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.handle(TimerExpired(Timer.BEGIN_QUORUM))
    leader.fetches(key(2, disk=1), offset=0)
    role = leader.core.state.role

    assert isinstance(role, Leader)
    assert role.voters[2].key == key(2, disk=1)
    assert refused(leader.fetches(key(2)), ErrorCode.DUPLICATE_VOTER)


def test_who_answers_where_a_voter_listens_is_that_voter() -> None:
    """A twin that fetches from a new leader first is found out as soon as the voter answers the leader's greeting."""
    leader = LeadingReplica(static(1, 2, 3))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.voters[2].key = key(2, disk=1)
    role.voters[2].knows_leader = False
    greeting = next(
        each for each in leader.sent if isinstance(each.request, BeginQuorumEpochRequest) and each.peer == 2
    )
    leader.core.state.inflight[2, BeginQuorumEpochRequest.__name__] = greeting.request
    response = BeginQuorumEpochResponse(epoch=1, leader_id=1, voter=key(2))
    leader.handle(ResponseReceived(2, greeting.request, response))

    assert (role.voters[2].key, role.voters[2].end_offset) == (key(2), -1)
    assert refused(leader.fetches(key(2, disk=1)), ErrorCode.DUPLICATE_VOTER)


def test_a_refused_twin_asks_ever_less_often() -> None:  # ours: a person has to do something about it
    twin = Replica(static(1, 2, 3), node=3)
    begin = BeginQuorumEpochRequest(cluster_id="c", epoch=1, sender=key(2), receiver=key(3), endpoint=endpoint(2))
    twin.ask(begin)
    refused_at = []
    while twin.now_ms < FETCH_TIMEOUT_MS - 1:
        asked = twin.sent[-1]
        if isinstance(asked.request, FetchRequest) and twin.core.state.awaited(2, asked.request) is asked.request:
            refused_at.append(twin.now_ms)
            answer = FetchResponse(error=ErrorCode.DUPLICATE_VOTER, epoch=1, leader_id=2, leader_endpoint=endpoint(2))
            twin.handle(ResponseReceived(2, asked.request, answer))
        twin.wait(1)
        twin.handle(Ticked())

    pauses = [after - before for before, after in itertools.pairwise(refused_at)]
    assert pauses == [20, 40, 80, 160, 320, 640]


def test_a_leader_greets_a_replaced_disk_ever_less_often() -> None:  # INVALID_VOTER_KEY; Kafka: twice a fetch timeout
    leader = LeadingReplica(formatted(1, 2, 3))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.handle(TimerExpired(Timer.BEGIN_QUORUM))
    greeted = 0
    for _ in range(FETCH_TIMEOUT_MS):
        asked = leader.core.state.inflight.get((2, BeginQuorumEpochRequest.__name__))
        if asked is not None:
            greeted += 1
            answer = BeginQuorumEpochResponse(error=ErrorCode.INVALID_VOTER_KEY, epoch=1, leader_id=1)
            leader.handle(ResponseReceived(2, asked, answer))
        leader.wait(1)
        leader.fetches(key(3))
        leader.handle(Ticked())

    assert greeted == 7
    leader.wait(FETCH_TIMEOUT_MS // 2)
    leader.handle(Ticked())
    asked = leader.core.state.inflight[2, BeginQuorumEpochRequest.__name__]
    leader.handle(ResponseReceived(2, asked, BeginQuorumEpochResponse(epoch=1, leader_id=1, voter=key(2))))
    assert leader.core.state.pauses == {}


def test_an_automatic_join_does_not_remove_a_voter_that_lives() -> None:  # ours: a twin with auto-join would
    leader = logged(1, 2, 3)

    assert refused(leader.removes(key(2), sender=key(2, disk=1)), ErrorCode.DUPLICATE_VOTER, "lives")
    leader.wait(FETCH_TIMEOUT_MS)
    leader.handle(TimerExpired(Timer.BEGIN_QUORUM))
    leader.fetches(key(3))
    assert leader.removes(key(2), sender=key(2, disk=1)) is None
    assert leader.voters == (1, 3)


def test_only_the_voters_own_disk_keeps_the_leader_in_office() -> None:  # kraft.md 1.7
    """Another directory under a voter's node id is an observer, also while it reads a snapshot."""
    leader = logged(1, 2, 3)
    leader.wait(FETCH_TIMEOUT_MS)
    leader.handle(TimerExpired(Timer.BEGIN_QUORUM))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.heard_from.clear()
    before = leader.core.state.timers[Timer.CHECK_QUORUM]
    place = OffsetAndEpoch(1, 1)
    sender = key(2, disk=1)
    leader.ask(FetchSnapshotRequest(cluster_id="c", epoch=1, sender=sender, snapshot=place, position=0, max_bytes=1))
    assert (leader.core.state.timers[Timer.CHECK_QUORUM], role.heard_from) == (before, {})

    leader.ask(FetchSnapshotRequest(cluster_id="c", epoch=1, sender=key(2), snapshot=place, position=0, max_bytes=1))
    assert leader.core.state.timers[Timer.CHECK_QUORUM] > before


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


# --- joining by itself ------------------------------------------------------------------------------------------------


def follower(voters: VoterSet, node: int, **settings: Any) -> Replica:
    """A node that follows leader 2 of epoch 1, a fetch timeout later."""
    replica = Replica(voters, node=node, **settings)
    replica.ask(
        BeginQuorumEpochRequest(cluster_id="c", epoch=1, sender=key(2), receiver=key(node), endpoint=endpoint(2))
    )
    assert isinstance(replica.core.state.role, Follower)
    replica.sent.clear()
    replica.handle(TimerExpired(Timer.UPDATE_VOTER))
    return replica


def test_a_controller_that_may_joins_by_itself() -> None:  # controller.quorum.auto.join.enable
    asked = [each.request for each in follower(formatted(1, 2, 3), 4, auto_join=True).sent]

    assert [type(each) for each in asked] == [AddVoterRequest]
    assert [type(each.request) for each in follower(formatted(1, 2, 3), 4).sent] == []


def test_a_controller_first_removes_its_former_disk() -> None:  # kraft.md 1.11
    voters = VoterSet.of([*formatted(1, 2).voters, Voter(key(3, disk=1), endpoint(3))])
    asked = [each.request for each in follower(voters, 3, auto_join=True).sent]

    assert [type(each) for each in asked] == [RemoveVoterRequest]
    assert asked[0].voter == key(3, disk=1)  # type: ignore[attr-defined]


# --- finding the quorum -----------------------------------------------------------------------------------------------


def fetched_from(replica: Replica) -> list[Endpoint]:
    return [each.endpoint for each in replica.sent if isinstance(each.request, FetchRequest)]


def test_a_node_that_knows_no_voters_asks_the_bootstrap_servers() -> None:  # kraft.md 1.2
    replica = Replica(VoterSet(), node=4, bootstrap=(endpoint(7),))
    assert fetched_from(replica) == [endpoint(7)]

    asked = replica.sent[-1]
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    response = FetchResponse(error=error, epoch=3, leader_id=2, leader_endpoint=endpoint(2))
    replica.handle(ResponseReceived(asked.peer, asked.request, response))
    assert (replica.core.state.epoch, replica.core.state.role.leader_id) == (3, 2)
    assert fetched_from(replica) == [endpoint(7), endpoint(2)]


def test_a_voter_without_a_leader_asks_them_too() -> None:
    """All the voters it knows of may have left long ago."""
    assert fetched_from(Replica(formatted(1, 2, 3), node=3, bootstrap=(endpoint(7),))) == [endpoint(7)]
    assert fetched_from(Replica(formatted(1, 2, 3), node=3)) == []


def test_nobody_asks_itself() -> None:
    assert fetched_from(Replica(VoterSet(), node=4, bootstrap=(endpoint(4),))) == []
