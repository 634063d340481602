"""Which answers the core is told of."""

from collections.abc import Callable
from typing import Any, cast

from ottla.quorum import messages_proto
from ottla.quorum.peers import Peers
from ottla.quorum.questions import Questions
from ottla.quorum.raft.events import Event, ResponseReceived
from ottla.quorum.raft.instructions import SendRequest
from ottla.quorum.raft.messages import FetchRequest, FetchResponse
from ottla.quorum.raft.observing import FIRST_BOOTSTRAP_ID
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.settings import QuorumSettings
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import CLUSTER, OneCore, endpoint, key


class PatientPeers:
    """Holds the answers back."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any], None]] = []

    def call(self, peer: int, place: Endpoint, request: Any, on_done: Callable[[Any], None], timeout_ms: int) -> None:
        self.waiting.append(on_done)


def asking(told: list[Event]) -> tuple[PatientPeers, Questions, list[str]]:
    """Of voter 1, beside 2 and 3; and why it could not go on."""
    peers, failures = PatientPeers(), list[str]()
    settings = QuorumSettings(node_id=1, cluster_id=CLUSTER, voters={}, is_voter=True)
    state = OneCore(1, 2, 3).state
    return peers, Questions(settings, state, cast(Peers, peers), told.append, failures.append), failures


def fetch() -> FetchRequest:
    return FetchRequest(
        cluster_id=CLUSTER,
        epoch=1,
        sender=key(1),
        offset=5,
        last_epoch=1,
        high_watermark=0,
        max_wait_ms=500,
        max_bytes=1000,
    )


def test_asked_again_in_the_same_words_only_the_last_asking_is_answered() -> None:
    """The core knows requests by their value: a late answer to the first would be taken for one to the second, and records that were
    cut meanwhile would come back."""
    told: list[Event] = []
    peers, questions, failures = asking(told)
    request = fetch()
    questions.ask(SendRequest(2, endpoint(2), request))
    questions.ask(SendRequest(2, endpoint(2), request))
    late, answer = FetchResponse(epoch=1, high_watermark=3), FetchResponse(epoch=1, high_watermark=4)
    peers.waiting[0](messages_proto.response_to_proto(late))
    peers.waiting[1](messages_proto.response_to_proto(answer))

    assert told == [ResponseReceived(2, request, answer)]
    assert failures == []


def test_strangers_where_nobody_votes_any_more_do_not_end_the_node() -> None:
    """Addresses of former controllers may belong to another cluster by now."""
    peers, questions, failures = asking([])
    stranger = messages_proto.response_to_proto(FetchResponse(epoch=9, error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    for peer in (FIRST_BOOTSTRAP_ID, FIRST_BOOTSTRAP_ID - 1, 4, 2):
        questions.ask(SendRequest(peer, endpoint(2), fetch()))
        peers.waiting.pop()(stranger)
    assert failures == []
    questions.ask(SendRequest(3, endpoint(3), fetch()))
    peers.waiting.pop()(stranger)
    assert "voters 2, 3 belong to another cluster" in failures[0]
