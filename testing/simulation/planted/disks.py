"""Bugs of a metadata log that was cut, or forgotten, behind what is committed."""

from ottla.quorum.raft import rules
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.snapshots import exchange
from ottla.quorum.snapshots.image_fit import Fit
from ottla.testing.simulation.planted.bug import PlantedBug

_DIVERGENCE = rules.divergence


def _trusts_the_image(applied: OffsetAndEpoch, log: LogSummary) -> Fit:
    """As long as the log has not begun after it."""
    return Fit.GO_ON if applied.offset >= log.start else Fit.REBUILD


def _compares_epochs_alone(log: LogSummary, offset: int, last_epoch: int, last_mark: int = 0) -> OffsetAndEpoch | None:
    return _DIVERGENCE(log, offset, last_epoch)


DISKS = (
    PlantedBug(
        "keep an image whose log was cut",
        "image_fit.fit: the last record in the image is one of the log",
        ((exchange, "fit", _trusts_the_image),),
        3,
        (),
        ("nothing fails unseen", "when faults end, the cluster heals"),
        ("disks",),
    ),
    PlantedBug(
        "take an epoch that was given twice for one",
        "rules.divergence: an epoch that another leader began is another",
        ((rules, "divergence", _compares_epochs_alone),),
        5,
        (),
        ("nothing fails unseen", "when faults end, the cluster heals", "BrokenPromise"),
        ("disks",),
    ),
)
