"""Every legal change of role, in one table. Only the table, and what reads it, may live here.

`check` runs at every change; docs/quorum.md's diagram is drawn from the same rows (``python -m ottla.quorum.raft.diagram``).
Changes that are not here are bugs and raise.
"""

from enum import StrEnum
from typing import NamedTuple


class RoleName(StrEnum):
    """The roles, as the classes in ``roles`` are called. Observers are Unattached or Followers outside the voter set."""

    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    RESIGNED = "Resigned"
    FOLLOWER = "Follower"


class Cause(StrEnum):
    """Why a role changes."""

    ELECTION_TIMEOUT = "election timeout"
    FETCH_TIMEOUT = "fetch timeout, or the leader is known to be gone"
    SINGLE_VOTER = "it is the only voter"
    PRE_VOTES_WON = "a majority would vote for it"
    PRE_VOTES_LOST = "a majority would not, or time is up"
    VOTES_WON = "a majority voted for it"
    CANDIDACY_OVER = "election timeout without a majority"
    VOTE_GRANTED = "gives its vote"
    HIGHER_EPOCH = "meets a higher epoch"
    LEADER_KNOWN = "learns the leader of its epoch"
    LOST_QUORUM = "a majority was not heard from"
    SHUTDOWN = "leaves"
    RESIGN = "the application resigns"
    REMOVED = "its removal from the voters is committed"
    NO_VOTER = "is a voter no longer"


class EpochRule(StrEnum):
    """What a change does to the epoch."""

    SAME = "same"
    NEXT = "+1"
    HIGHER = "higher"


class Transition(NamedTuple):
    source: RoleName
    cause: Cause
    target: RoleName
    epoch: EpochRule


_R, _C, _E = RoleName, Cause, EpochRule

TRANSITIONS: tuple[Transition, ...] = (
    # Elections
    Transition(_R.UNATTACHED, _C.ELECTION_TIMEOUT, _R.PROSPECTIVE, _E.SAME),
    Transition(_R.UNATTACHED, _C.SINGLE_VOTER, _R.PROSPECTIVE, _E.SAME),
    Transition(_R.UNATTACHED, _C.VOTE_GRANTED, _R.UNATTACHED, _E.SAME),
    Transition(_R.FOLLOWER, _C.FETCH_TIMEOUT, _R.PROSPECTIVE, _E.SAME),
    Transition(_R.FOLLOWER, _C.SINGLE_VOTER, _R.PROSPECTIVE, _E.SAME),
    Transition(_R.PROSPECTIVE, _C.VOTE_GRANTED, _R.PROSPECTIVE, _E.SAME),
    Transition(_R.PROSPECTIVE, _C.PRE_VOTES_WON, _R.CANDIDATE, _E.NEXT),
    Transition(_R.PROSPECTIVE, _C.PRE_VOTES_LOST, _R.FOLLOWER, _E.SAME),
    Transition(_R.PROSPECTIVE, _C.PRE_VOTES_LOST, _R.UNATTACHED, _E.SAME),
    Transition(_R.CANDIDATE, _C.VOTES_WON, _R.LEADER, _E.SAME),
    Transition(_R.CANDIDATE, _C.CANDIDACY_OVER, _R.PROSPECTIVE, _E.SAME),
    # A leader appears
    Transition(_R.UNATTACHED, _C.LEADER_KNOWN, _R.FOLLOWER, _E.SAME),
    Transition(_R.PROSPECTIVE, _C.LEADER_KNOWN, _R.FOLLOWER, _E.SAME),
    Transition(_R.CANDIDATE, _C.LEADER_KNOWN, _R.FOLLOWER, _E.SAME),
    # A leader goes
    Transition(_R.LEADER, _C.LOST_QUORUM, _R.RESIGNED, _E.SAME),
    Transition(_R.LEADER, _C.SHUTDOWN, _R.RESIGNED, _E.SAME),
    Transition(_R.LEADER, _C.RESIGN, _R.RESIGNED, _E.SAME),
    Transition(_R.LEADER, _C.REMOVED, _R.RESIGNED, _E.SAME),
    Transition(_R.RESIGNED, _C.ELECTION_TIMEOUT, _R.UNATTACHED, _E.NEXT),
    # The voter set changes under a campaign
    Transition(_R.PROSPECTIVE, _C.NO_VOTER, _R.UNATTACHED, _E.SAME),
    Transition(_R.CANDIDATE, _C.NO_VOTER, _R.UNATTACHED, _E.SAME),
    # A higher epoch ends everything
    *(Transition(role, _C.HIGHER_EPOCH, _R.UNATTACHED, _E.HIGHER) for role in RoleName),
    *(Transition(role, _C.HIGHER_EPOCH, _R.FOLLOWER, _E.HIGHER) for role in RoleName),
)

_LEGAL = {(row.source, row.cause, row.target): row.epoch for row in TRANSITIONS}


class IllegalTransition(AssertionError):
    """A change of role that the table does not have: our own mistake."""


def check(source: RoleName, source_epoch: int, cause: Cause, target: RoleName, target_epoch: int) -> None:
    """Raises IllegalTransition unless the table has the row and the epoch moves as it says."""
    rule = _LEGAL.get((source, cause, target))
    step = target_epoch - source_epoch
    legal = {EpochRule.SAME: step == 0, EpochRule.NEXT: step == 1, EpochRule.HIGHER: step > 0}
    if rule is None or not legal[rule]:
        raise IllegalTransition(f"{source} (epoch {source_epoch}) to {target} (epoch {target_epoch}): {cause}")
