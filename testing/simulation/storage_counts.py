"""What the logs do, so that a run can tell that it had anything to check."""

from ottla.log.compaction.worker import Outcome


class StorageCounts:
    """What all nodes did: segments rolled, cleanings that removed something, segments forgotten, snapshots of the metadata taken
    and installed."""

    def __init__(self) -> None:
        self.rolled = self.cleaned = self.forgotten = self.snapshots = self.installed = 0

    def segment_created(self, base_offset: int) -> None:
        self.rolled += bool(base_offset)

    def segment_cleaned(self, installed: bool, outcome: Outcome) -> None:
        result = outcome.result
        self.cleaned += installed and result is not None and result.written_bytes < result.read_bytes

    def counts(self) -> dict[str, int]:
        """By names for people."""
        return {
            "segments rolled": self.rolled,
            "cleanings": self.cleaned,
            "forgotten": self.forgotten,
            "snapshots taken": self.snapshots,
            "installed": self.installed,
        }
