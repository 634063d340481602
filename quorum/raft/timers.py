"""The names of what a replica waits for."""

from enum import StrEnum


class Timer(StrEnum):
    """What a replica waits for, a deadline each; a replica has at most one of a kind."""

    ELECTION = "election"  # unattached, prospective, candidate, resigned: act when nobody leads
    FETCH = "fetch"  # follower: nothing heard from the leader
    CHECK_QUORUM = "check-quorum"  # leader: no majority heard from
    BEGIN_QUORUM = "begin-quorum"  # leader: remind voters that do not fetch
    RETRY = "retry"  # destinations that failed may be asked again
    PARKED = "parked"  # a waiting fetch has waited long enough
    HAND_OVER = "hand-over"  # leader that leaves: not all it appended is committed yet
    UPDATE_VOTER = "update-voter"  # follower: compare own endpoint with the log's
