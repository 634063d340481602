"""A new voter is looked for where it says that it listens."""

from ottla.quorum.raft.messages import AddVoterRequest
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.quorum.voter_probe import complaint
from ottla.runtime.errors import ErrorCode

FOUR = ReplicaKey(4, bytes([4]) * 16)
REQUEST = AddVoterRequest(
    cluster_id="c", epoch=0, sender=ReplicaKey(-1), voter=FOUR, endpoint=Endpoint("localhost", 9093)
)


def test_a_node_that_answers_where_it_listens_is_fine() -> None:  # KIP-853
    assert complaint(REQUEST, FOUR, reads=1) is None


def test_a_node_that_does_not_read_what_voters_need_is_refused() -> None:  # KIP-853: kraft.version
    found = complaint(REQUEST, FOUR, reads=0)

    assert found is not None
    assert found[0] is ErrorCode.INVALID_REQUEST
    assert "node 4 reads kraft.version 0 to 0, voters need 1: upgrade it first" in found[1]


def test_a_node_that_cannot_be_reached_is_refused() -> None:
    found = complaint(REQUEST, None)

    assert found is not None
    assert found[0] is ErrorCode.REQUEST_TIMED_OUT
    assert "nobody answers at localhost:9093" in found[1]


def test_another_node_at_that_place_is_named() -> None:
    found = complaint(REQUEST, ReplicaKey(5, bytes([5]) * 16))

    assert found is not None
    assert found[0] is ErrorCode.INVALID_VOTER_KEY
    assert "listens node 5, not node 4" in found[1]


def test_another_directory_at_that_place_is_told() -> None:
    found = complaint(REQUEST, ReplicaKey(4, bytes([9]) * 16))

    assert found is not None
    assert "node 4 with another directory id" in found[1]
