"""AddRaftVoter and RemoveRaftVoter: what the quorum is asked, and what the client hears."""

from typing import Any, cast

import pytest

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.quorum.raft.messages import VoterChangeResponse
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.quorum.voter_changes import OnChanged
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID
from tests.unit.broker.handlers.conftest import Site

DISK = bytes(range(16))
LISTENERS = [Listener("PLAINTEXT", "c4", 9092), Listener("Controller", "c4", 9093)]


class FakeQuorum:
    """A quorum that answers every change with ``answer``."""

    def __init__(self, answer: VoterChangeResponse) -> None:
        self.answer = answer
        self.voter_changes = self
        self.asked: list[tuple[Any, ...]] = []

    def add(
        self, voter: ReplicaKey, endpoint: Endpoint, on_done: OnChanged, timeout_ms: int, *, wait_for_commit: bool
    ) -> None:
        self.asked.append((voter, endpoint, timeout_ms, wait_for_commit))
        on_done(self.answer)

    def remove(self, voter: ReplicaKey, on_done: OnChanged, timeout_ms: int) -> None:
        self.asked.append((voter, timeout_ms))
        on_done(self.answer)


def with_quorum(site: Site, error: ErrorCode = ErrorCode.NONE, message: str = "") -> FakeQuorum:
    quorum = FakeQuorum(VoterChangeResponse(error=error, epoch=1, message=message))
    site.broker.quorum = cast(Any, quorum)
    return quorum


def test_clients_are_offered_what_brokers_answer_in_kafka(site: Site) -> None:
    told = [each.api_key for each in site.ask(ApiVersionsRequest("test", "1"), 3).api_keys]

    assert BY_NAME["AddRaftVoter"].key in told
    assert BY_NAME["RemoveRaftVoter"].key in told
    assert BY_NAME["UpdateRaftVoter"].key not in told  # for controllers only


@pytest.mark.parametrize("version", [0, 1])
def test_a_new_voter_is_asked_for_with_its_controller_listener(site: Site, version: int) -> None:
    quorum = with_quorum(site)
    body = AddRaftVoterRequest("the-cluster", 700, 4, DISK, LISTENERS, ack_when_committed=version == 0)
    response = site.ask(body, version)

    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert quorum.asked == [(ReplicaKey(4, DISK), Endpoint("c4", 9093), 700, version == 0)]


def test_what_the_quorum_refuses_is_told_in_its_words(site: Site) -> None:
    with_quorum(site, ErrorCode.DUPLICATE_VOTER, "node 4 is a voter already")
    response = site.ask(AddRaftVoterRequest(None, 700, 4, DISK, LISTENERS), 1)

    assert (response.error_code, response.error_message) == (ErrorCode.DUPLICATE_VOTER, "node 4 is a voter already")


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (AddRaftVoterRequest("other", 1, 4, DISK, LISTENERS), ErrorCode.INCONSISTENT_CLUSTER_ID, "not other"),
        (AddRaftVoterRequest(None, 1, 4, DISK, LISTENERS[:1]), ErrorCode.INVALID_REQUEST, "named CONTROLLER"),
        (AddRaftVoterRequest(None, 1, 4, ZERO_ID, LISTENERS), ErrorCode.INVALID_REQUEST, "metadata directory"),
        (AddRaftVoterRequest(None, 1, -1, DISK, LISTENERS), ErrorCode.INVALID_REQUEST, "a node id"),
        (AddRaftVoterRequest(None, 1, 4, DISK, [Listener("CONTROLLER", "", 1)]), ErrorCode.INVALID_REQUEST, "host and"),
    ],
)
def test_a_voter_that_cannot_be_one_is_refused_here(
    site: Site, body: AddRaftVoterRequest, error: ErrorCode, words: str
) -> None:
    quorum = with_quorum(site)
    response = site.ask(body, 1)

    assert response.error_code == error
    assert words in response.error_message
    assert quorum.asked == []


def test_a_voter_is_removed_by_node_and_directory(site: Site) -> None:
    quorum = with_quorum(site)
    assert site.ask(RemoveRaftVoterRequest("the-cluster", 4, DISK), 0).error_code == ErrorCode.NONE
    assert site.ask(RemoveRaftVoterRequest(None, 4, ZERO_ID), 0).error_code == ErrorCode.NONE

    assert [voter for voter, _ in quorum.asked] == [ReplicaKey(4, DISK), ReplicaKey(4)]


def test_another_clusters_voter_is_not_removed(site: Site) -> None:
    quorum = with_quorum(site)
    assert site.ask(RemoveRaftVoterRequest("other", 4, DISK), 0).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert quorum.asked == []
