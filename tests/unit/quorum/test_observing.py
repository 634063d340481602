"""Whom an observer fetches from: any follower in touch with the leader, and the leader only in need."""

from random import Random
from typing import Any

from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import ResponseReceived, Started, Ticked
from ottla.quorum.raft.instructions import Instruction, SendRequest
from ottla.quorum.raft.log_summary import LogSummary
from ottla.quorum.raft.messages import FetchRequest, FetchResponse
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode

LEADER, OBSERVER = 1, 9
RETRY_MS = 20


class Observer:
    """A plain broker that knows the leader; `asked` is the voter it fetches from now."""

    def __init__(self, seed: int = 1, hosts: dict[int, str] | None = None) -> None:
        hosts = hosts or {1: "a", 2: "b", 3: "c"}
        settings = RaftSettings(
            cluster_id="c",
            can_vote=False,
            fetch_from_any_voter=True,
            retry_backoff_ms=RETRY_MS,
            early_election_max_ms=20,
        )
        voters = VoterSet.of(Voter(ReplicaKey(node), Endpoint(host, node)) for node, host in hosts.items())
        election = ElectionState(1, LEADER)
        self.core = RaftCore(
            settings,
            ReplicaKey(OBSERVER),
            Endpoint("c", 9),
            Random(seed),
            LogSummary(),
            VoterHistory(voters),
            election,
        )
        self.now_ms = 0
        self._sent: SendRequest
        self._take(self.core.handle(Started(), 0))

    def _take(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, SendRequest):
                assert isinstance(instruction.request, FetchRequest)
                self._sent = instruction

    @property
    def asked(self) -> int:
        return self._sent.peer

    def answered(self, error: ErrorCode | None = ErrorCode.NONE) -> "Observer":
        """By the voter it asked; None: not at all."""
        response: Any = None
        if error is not None:
            response = FetchResponse(error=error, epoch=1, leader_id=LEADER, leader_endpoint=Endpoint("a", 1))
        self._take(self.core.handle(ResponseReceived(self.asked, self._sent.request, response), self.now_ms))
        return self

    def later(self, ms: int) -> "Observer":
        self.now_ms += ms
        self._take(self.core.handle(Ticked(), self.now_ms))
        return self


def test_observers_spread_over_the_followers_and_spare_the_leader() -> None:
    assert {Observer(seed, {1: "a", 2: "a", 3: "a"}).asked for seed in range(20)} == {2, 3}


def test_a_follower_on_the_own_host_is_preferred() -> None:
    assert {Observer(seed).asked for seed in range(20)} == {3}
    assert {Observer(seed, {1: "c", 2: "b", 3: "b"}).asked for seed in range(20)} == {2, 3}, "not the near leader"


def test_an_observer_stays_with_the_follower_that_serves_it() -> None:
    observer = Observer(hosts={1: "a", 2: "a", 3: "a"})
    chosen = observer.asked
    assert [observer.answered().asked for _ in range(5)] == [chosen] * 5


def test_the_leader_serves_while_no_follower_does() -> None:
    observer = Observer().answered(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert observer.asked == 2
    assert observer.answered(None).asked == LEADER


def test_an_observer_leaves_the_leader_when_a_follower_may_be_asked_again() -> None:
    observer = Observer().answered(None).answered(None)
    assert observer.asked == LEADER
    assert observer.answered().asked == LEADER, "the others failed a moment ago"
    observer.later(RETRY_MS)
    assert observer.answered().asked != LEADER
