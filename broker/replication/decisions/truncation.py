"""Where two logs part: the leader's answer to a follower that took another branch, and how far that follower cuts.

A follower names the epoch of its last batch with each fetch (KIP-595, kraft.md 3.5). If the leader's log ends that epoch
earlier, what the follower has beyond was never committed and must go, or the logs would differ below the high watermark. That
an epoch is in the leader's log shows that both agree up to there; one that was deleted from it (DeleteRecords, retention) shows nothing.
"""

from collections.abc import Callable

import msgspec

UNDEFINED = -1

EndOffsetForEpoch = Callable[[int], tuple[int, int]]
"""``log.end_offset_for_epoch``: the largest epoch not above the one asked for, and where it ends; (-1, -1) if undefined."""


class Diverging(msgspec.Struct, frozen=True):
    """The leader's largest epoch not above the follower's, and where it ends on the leader."""

    epoch: int
    end_offset: int


def divergence(fetch_offset: int, last_fetched_epoch: int, end_offset_for_epoch: EndOffsetForEpoch) -> Diverging | None:
    """Leader: None when the fetcher's log is a prefix of ours; else where to look. An epoch of -1 asks for no check.

    An undefined answer comes back as Diverging(-1, -1): the leader cannot tell, which the protocol calls OFFSET_OUT_OF_RANGE.
    """
    if last_fetched_epoch == UNDEFINED:
        return None
    epoch, end_offset = end_offset_for_epoch(last_fetched_epoch)
    if epoch == UNDEFINED or end_offset == UNDEFINED:
        return Diverging(UNDEFINED, UNDEFINED)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return Diverging(epoch, end_offset)
    return None


def divergence_from_deleted(
    fetch_offset: int, last_fetched_epoch: int, follower_start: int, log_start_offset: int
) -> Diverging | None:
    """Leader: `divergence` for a follower whose last batch is of an older epoch than all that our log still has.

    We know that it had nothing from our log start on. Whether what it has below was ours, nobody can tell any more; it would
    come to light if that follower led. So it begins anew where our log does, which Diverging(-1, -1) makes it find, unless it holds nothing.
    """
    if fetch_offset > log_start_offset:
        return Diverging(last_fetched_epoch, log_start_offset)
    return None if follower_start == fetch_offset else Diverging(UNDEFINED, UNDEFINED)


def truncation_offset(
    diverging: Diverging, log_end_offset: int, fetch_offset: int, end_offset_for_epoch: EndOffsetForEpoch
) -> int:
    """Follower: where to cut the log. The fetch that follows finds out whether that was enough.

    If we know the leader's epoch, both logs agree up to the nearer end of it. If we do not, our largest smaller epoch is the
    next candidate; each round goes down at least one epoch, so it ends. The high watermark is no limit: after an unclean
    election committed records go too.
    """
    if diverging.end_offset == UNDEFINED:
        return min(fetch_offset, log_end_offset)
    epoch, local_end = end_offset_for_epoch(diverging.epoch)
    if epoch == UNDEFINED or local_end == UNDEFINED:
        return min(diverging.end_offset, log_end_offset)
    if epoch == diverging.epoch:
        return min(local_end, diverging.end_offset, log_end_offset)
    return min(local_end, log_end_offset)
