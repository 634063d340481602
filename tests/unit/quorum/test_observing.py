"""Whom an observer fetches from: any follower in touch with the leader, and the leader only in need."""

from random import Random
from typing import Any

from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import RackMatesLearned, ResponseReceived, Started, Ticked
from ottla.quorum.raft.instructions import Instruction, SendRequest
from ottla.quorum.raft.log_summary import LogSummary
from ottla.quorum.raft.messages import FetchRequest, FetchResponse
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode

LEADER, OBSERVER = 1, 9
RETRY_MS = 20
OWN = Endpoint("c", 9)


class Observer:
    """A plain broker that knows the leader; `asked` is the voter it fetches from now."""

    def __init__(
        self, seed: int = 1, hosts: dict[int, str] | None = None, own: Endpoint = OWN, names: tuple[str, ...] = ()
    ) -> None:
        hosts = hosts or {1: "a", 2: "b", 3: "c"}
        settings = RaftSettings(
            cluster_id="c",
            can_vote=False,
            fetch_from_any_voter=True,
            retry_backoff_ms=RETRY_MS,
            early_election_max_ms=20,
            hosts=names,
        )
        voters = VoterSet.of(Voter(ReplicaKey(node), Endpoint(host, node)) for node, host in hosts.items())
        election = ElectionState(1, LEADER)
        self.core = RaftCore(
            settings,
            ReplicaKey(OBSERVER),
            own,
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

    def answered(self, error: ErrorCode | None = ErrorCode.NONE, high_watermark: int = 0) -> "Observer":
        """By the voter it asked; None: not at all."""
        response: Any = None
        if error is not None:
            leader = {"leader_id": LEADER, "leader_endpoint": Endpoint("a", 1)}
            response = FetchResponse(error=error, epoch=1, high_watermark=high_watermark, **leader)  # type: ignore[arg-type]
        self._take(self.core.handle(ResponseReceived(self.asked, self._sent.request, response), self.now_ms))
        return self

    def learns_rack_mates(self, *nodes: int) -> "Observer":
        self._take(self.core.handle(RackMatesLearned(frozenset(nodes)), self.now_ms))
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


def test_who_has_more_than_followers_can_judge_asks_the_leader() -> None:
    """The controllers' disks went back in time: whether its log diverges, followers cannot say before they have as much again."""
    observer = Observer()
    assert [observer.answered(high_watermark=-1).asked for _ in range(2)] == [2, LEADER]
    assert observer.answered(high_watermark=-1).asked == LEADER, "who has committed nothing yet in its epoch"
    observer.later(RETRY_MS)
    assert observer.answered().asked == 3


FAR = {1: "a", 2: "b", 3: "b", 4: "d"}


def test_the_names_of_a_brokers_machine_make_a_follower_near() -> None:
    """A plain broker has no endpoint of its own in the quorum."""
    nowhere = Endpoint("", 0)
    assert {Observer(seed, FAR, nowhere).asked for seed in range(20)} == {2, 3, 4}
    assert {Observer(seed, FAR, nowhere, names=("d", "x")).asked for seed in range(20)} == {4}


def test_an_observer_moves_to_its_own_rack_as_soon_as_it_knows_it() -> None:  # broker.rack, as in KIP-392
    observer = Observer(hosts=FAR)
    mate = next(node for node in (2, 3, 4) if node != observer.asked)

    assert observer.learns_rack_mates(mate, LEADER).answered().asked == mate
    assert observer.learns_rack_mates(LEADER).answered().asked == mate, "not the leader, be it near"


def test_the_same_host_is_nearer_than_the_same_rack() -> None:
    observer = Observer(hosts={1: "a", 2: "b", 3: "c"})
    assert observer.asked == 3
    assert observer.learns_rack_mates(2).answered().asked == 3
    assert observer.answered(None).asked == 2, "and the rack is the next best"


def test_an_observer_returns_to_the_near_follower_when_that_serves_again() -> None:
    observer = Observer(hosts={1: "a", 2: "b", 3: "c"}).answered(None)
    assert observer.asked == 2
    assert observer.later(RETRY_MS).answered().asked == 3


def test_a_follower_that_fails_again_and_again_is_asked_ever_less() -> None:
    """Each try may cost the observer a whole request timeout."""
    observer = Observer(hosts={1: "a", 2: "b", 3: "c"})
    tries = 0
    for _ in range(600):  # a minute of long polls that bring nothing
        if observer.asked == 3:
            tries += 1
            observer.answered(None)
        observer.later(100).answered()

    assert tries < 20
    assert observer.later(30_000).answered().asked == 3, "within half a minute it is asked again"


def test_who_fails_is_asked_all_the_same_while_there_is_no_other() -> None:
    observer = Observer(hosts={1: "a"})
    for _ in range(20):
        observer.answered(None).later(RETRY_MS)
        assert observer.asked == LEADER

    assert observer.core.state.inflight
