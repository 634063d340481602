"""Whoever is asked, the quorum is described by its leader."""

from collections.abc import Callable
from typing import Any, cast

from ottla.broker.quorum_view import QuorumView
from ottla.proto import quorum_pb2 as pb
from ottla.quorum.describe import description_to_proto
from ottla.quorum.listener import QuorumDescription, ReplicaDescription
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.errors import ErrorCode

DIRECTORY = bytes(range(16))
ENDPOINT = Endpoint("c3", 9093)
KNOWN = QuorumDescription(3, 9, 120, [ReplicaDescription(3, DIRECTORY, ENDPOINT, 125, 1000, 1001)], [])
OnDone = Callable[[pb.QuorumResponse | None], None]


class FakeQuorum:
    def __init__(self, description: QuorumDescription, is_leader: bool) -> None:
        self.description = description
        self.is_leader = is_leader

    def describe(self) -> QuorumDescription:
        return self.description

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        return next((each.endpoint for each in self.description.voters if each.id == node_id), None)


class FakeTransport:
    """A transport and its only channel."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, int]] = []
        self.calls: list[tuple[pb.QuorumRequest, OnDone]] = []
        self.closed = 0

    def channel(self, host: str, port: int, service: object, on_broken: Callable[[], None]) -> "FakeTransport":
        self.opened.append((host, port))
        return self

    def call(self, request: pb.QuorumRequest, on_done: OnDone, timeout_ms: int) -> None:
        self.calls.append((request, on_done))

    def close(self) -> None:
        self.closed += 1


def view(description: QuorumDescription, transport: FakeTransport, *, is_leader: bool = False) -> QuorumView:
    return QuorumView(cast(Any, FakeQuorum(description, is_leader)), cast(Any, transport), "the-cluster")


def test_a_leader_answers_itself() -> None:
    transport, answers = FakeTransport(), list[QuorumDescription | None]()
    view(KNOWN, transport, is_leader=True).describe(answers.append)
    assert answers == [KNOWN]
    assert transport.opened == []


def test_another_node_asks_the_leader_over_one_channel() -> None:
    transport, answers = FakeTransport(), list[QuorumDescription | None]()
    asking = view(KNOWN, transport)
    told = KNOWN._replace(observers=[ReplicaDescription(7, None, None, 119, 900, -1)])
    for _ in range(2):
        asking.describe(answers.append)
        request, on_done = transport.calls.pop()
        assert request.WhichOneof("body") == "describe_quorum"
        assert request.cluster_id == "the-cluster"
        on_done(description_to_proto(told, is_leader=True))
    assert answers == [told, told]
    assert transport.opened == [("c3", 9093)]
    asking.close()
    assert transport.closed == 1


def test_a_leader_that_moved_gets_another_channel() -> None:
    transport, quorum = FakeTransport(), FakeQuorum(KNOWN, False)
    asking = QuorumView(cast(Any, quorum), cast(Any, transport), "the-cluster")
    asking.describe(lambda found: None)
    quorum.description = KNOWN._replace(voters=[KNOWN.voters[0]._replace(endpoint=Endpoint("new", 1))])
    asking.describe(lambda found: None)
    assert transport.opened == [("c3", 9093), ("new", 1)]
    assert transport.closed == 1


def test_no_leader_no_answer_and_a_leader_no_more_are_told_as_unknown() -> None:
    transport, answers = FakeTransport(), list[QuorumDescription | None]()
    view(KNOWN._replace(leader_id=None), transport).describe(answers.append)
    view(KNOWN._replace(leader_id=5), transport).describe(answers.append)
    assert answers == [None, None]
    asking = view(KNOWN, transport)
    for response in (None, pb.QuorumResponse(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), leader_id=1)):
        asking.describe(answers.append)
        transport.calls.pop()[1](response)
    assert answers == [None] * 4
