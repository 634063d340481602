"""Which answers the core is told of."""

from collections.abc import Callable
from typing import Any, cast

from ottla.quorum import messages_proto
from ottla.quorum.peers import Peers
from ottla.quorum.questions import Questions
from ottla.quorum.raft.events import Event, ResponseReceived
from ottla.quorum.raft.instructions import SendRequest
from ottla.quorum.raft.messages import FetchRequest, FetchResponse
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.settings import QuorumSettings
from tests.unit.quorum.raft_core import CLUSTER, OneCore, endpoint, key


class PatientPeers:
    """Holds the answers back."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any], None]] = []

    def call(self, peer: int, place: Endpoint, request: Any, on_done: Callable[[Any], None], timeout_ms: int) -> None:
        self.waiting.append(on_done)


def test_asked_again_in_the_same_words_only_the_last_asking_is_answered() -> None:
    """The core knows requests by their value: a late answer to the first would be taken for one to the second, and records that were
    cut meanwhile would come back."""
    told: list[Event] = []
    peers, core = PatientPeers(), OneCore(1, 2, 3)
    settings = QuorumSettings(node_id=1, cluster_id=CLUSTER, voters={}, is_voter=True)
    questions = Questions(settings, core.state, cast(Peers, peers), told.append, told.clear)  # type: ignore[arg-type]  # nothing fails
    request = FetchRequest(
        cluster_id=CLUSTER,
        epoch=1,
        sender=key(1),
        offset=5,
        last_epoch=1,
        high_watermark=0,
        max_wait_ms=500,
        max_bytes=1000,
    )
    questions.ask(SendRequest(2, endpoint(2), request))
    questions.ask(SendRequest(2, endpoint(2), request))
    late, answer = FetchResponse(epoch=1, high_watermark=3), FetchResponse(epoch=1, high_watermark=4)
    peers.waiting[0](messages_proto.response_to_proto(late))
    peers.waiting[1](messages_proto.response_to_proto(answer))

    assert told == [ResponseReceived(2, request, answer)]
