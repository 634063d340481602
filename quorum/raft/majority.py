"""Quorum arithmetic: counting, and nothing about Raft."""

from collections.abc import Sequence
from enum import Enum


class VoteResult(Enum):
    """How an election stands."""

    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def majority(voters: int) -> int:
    """The smallest count such that any two groups of it among ``voters`` share a member."""
    return voters // 2 + 1


def vote_result(voters: int, granted: int, unanswered: int) -> VoteResult:
    """Won once a majority granted; lost once those who may still answer cannot make one."""
    needed = majority(voters)
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.PENDING if granted + unanswered >= needed else VoteResult.LOST


def agreed_offset(end_offsets: Sequence[int]) -> int:
    """The largest offset that a majority has reached: everything below it is on that many logs. -1 without voters."""
    if not end_offsets:
        return -1
    return sorted(end_offsets, reverse=True)[majority(len(end_offsets)) - 1]
