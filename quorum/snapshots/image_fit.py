"""Whether the image still is one of the history that the log tells.

The image and its snapshots hold what was committed, so in a quorum that keeps its promises the log always has, or will have, what
they were made of. A disk that went back in time breaks that (docs/quorum.md, "Lost disks"): another history takes the place of the
one that was committed, at the same offsets. An offset says nothing then, for the log may have grown past it since; a record is
known by its offset and its epoch, for in an epoch one leader alone gives each offset, and once.
"""

from enum import Enum

from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch

BEGINNING = OffsetAndEpoch(0, 0)
"""Before the first record: what an empty image has applied."""


class Fit(Enum):
    """What becomes of an image."""

    GO_ON = "it is what the log says up to there"
    REBUILD = (
        "it is of another history, or of records that are gone: it is made anew from the latest snapshot and the log"
    )
    REFUSE = "so it is, and nothing holds what lies before the log"


def fit(applied: OffsetAndEpoch, log: LogSummary) -> Fit:
    """What becomes of an image. ``applied``: where it ends, and the epoch of the last record in it."""
    if log.start <= applied.offset <= log.end and (
        applied == BEGINNING or log.epoch_below(applied.offset) == applied.epoch
    ):
        return Fit.GO_ON
    return Fit.REBUILD if log.start == 0 or log.snapshot is not None else Fit.REFUSE
