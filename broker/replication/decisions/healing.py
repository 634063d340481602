"""A damaged replica: when it may cut its log, to fetch anew what it cut. Rules and reasons: docs/architecture.md, "A damaged replica"."""

from ottla.quorum.metadata.views import NO_LEADER


def may_cut(node_id: int, leader_id: int, trusted: tuple[int, ...], *, fetched_in_epoch: bool) -> bool:
    """Whether a damaged replica, told of a leader epoch, may drop what it has from the damage on.

    Not while it is ``trusted``, in sync or eligible: it could be elected, and lack what was acknowledged. Not once it fetched in
    this epoch: the leader may be taking it back for what it said. Not without a leader: there is nobody to fetch from.
    """
    return leader_id not in (NO_LEADER, node_id) and node_id not in trusted and not fetched_in_epoch


def may_have_missed_ends(silent_ms: int, delete_retention_ms: int) -> bool:
    """Whether compaction may have taken ends of transactions from the leader's log before they were fetched, for so long was nothing
    written here. Then a later transaction of the same producer would end in its own way what is open here: aborted records would
    be read as committed. Nothing that is fetched tells, so what is open is fetched anew."""
    return silent_ms >= delete_retention_ms


def has_missed_an_end(
    first_open: int,
    log_end_offset: int,
    leaders_stable: int,
    leaders_high_watermark: int,
    leaders_start: int,
    *,
    is_in_isr: bool,
) -> bool:
    """Whether the transaction that is open in a follower's log from ``first_open`` on will never be ended by what it fetches.

    What is open holds the leader's last stable offset back, from its log start at least, and so does what was ended above its high
    watermark. All else was ended below that, and whoever has everything up to there has the marker; unless compaction took it, with
    all that it ended, before it was fetched. Then what is here of the transaction is as good as damaged.

    Who is in sync never missed anything: there the leader would be the one that forgot, and its word must not cost a sound replica.
    """
    return (
        not is_in_isr and max(first_open, leaders_start) < leaders_stable and log_end_offset >= leaders_high_watermark
    )


def report_again_ms(refusals: int) -> int:
    """How long to wait before the next report: it may be lost, and who is the only one in sync may have company later."""
    return min(REPORT_AGAIN_MAX_MS, REPORT_AGAIN_MS << min(refusals, 16))


REPORT_AGAIN_MS = 1_000
REPORT_AGAIN_MAX_MS = 30_000
