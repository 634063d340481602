"""What the simulation holds a restarted voter to: nothing that was saved is forgotten, and what was written and could not be synced may be there."""

from typing import cast

import pytest

from ottla.quorum.election_store import ElectionStore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.voters import ReplicaKey
from ottla.testing.simulation.quorum_invariants import QuorumInvariants
from ottla.testing.simulation.violations import Violations

VOTE, OTHER = ReplicaKey(2, b"2" * 16), ReplicaKey(3, b"3" * 16)


@pytest.mark.parametrize(
    ("saved", "read", "is_fine"),
    [
        (ElectionState(3, None, VOTE), ElectionState(3, None, VOTE), True),
        (ElectionState(3, None, VOTE), ElectionState(3, None, None), False),
        (ElectionState(3, None, VOTE), ElectionState(3, None, OTHER), False),
        (ElectionState(3, None, VOTE), ElectionState(2, None, VOTE), False),
        (ElectionState(3, 1, None), ElectionState(3, None, VOTE), False),
        (ElectionState(3, None, None), ElectionState(3, 1, None), True),
        (ElectionState(3, None, None), ElectionState(3, None, VOTE), True),
        (ElectionState(3, None, VOTE), ElectionState(4, None, None), True),
    ],
)
def test_a_voter_may_know_more_than_it_saved_and_never_less(
    saved: ElectionState, read: ElectionState, is_fine: bool
) -> None:
    violations = Violations()
    invariants = QuorumInvariants(violations)
    invariants.vote_saved(1, saved)
    invariants.vote_loaded(1, cast(ElectionStore, None), read)
    assert (violations.first is None) is is_fine
