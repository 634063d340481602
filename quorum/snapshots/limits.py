"""When snapshots are due, and which may go, and so where the metadata log begins (KIP-630; kraft.md 1.10)."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class RetentionLimits(msgspec.Struct, frozen=True):
    """``metadata.max.retention.bytes`` and ``metadata.max.retention.ms``; negative: no limit."""

    max_bytes: int = 100 << 20
    max_ms: int = 604_800_000

    def reached(self, total_bytes: int, oldest_ms: int) -> bool:
        """Whether a log and snapshots of so many bytes, the oldest of that age, are too much."""
        return 0 <= self.max_bytes < total_bytes or 0 <= self.max_ms < oldest_ms


class SnapshotLimits(msgspec.Struct, frozen=True):
    """``metadata.log.max.record.bytes.between.snapshots`` and ``metadata.log.max.snapshot.interval.ms`` (0: time alone makes no
    snapshot), and how many are kept."""

    after_bytes: int = 20 << 20
    after_ms: int = 3_600_000
    retention: RetentionLimits = RetentionLimits()


class HeldSnapshot(NamedTuple):
    """A snapshot's own size, the bytes of the log that lie below it, and when it was made (since 1970)."""

    size_bytes: int
    log_bytes_below: int
    made_ms: int


def expendable(held: Sequence[HeldSnapshot], log_bytes: int, limits: RetentionLimits, now_ms: int) -> int:
    """How many of the oldest may go, when the log then begins where the oldest that stays ends.

    One always stays, and the log is cut only where a snapshot older than that goes: whoever lags a little reads on in the log.
    """
    total = log_bytes + sum(snapshot.size_bytes for snapshot in held)
    for count in range(len(held) - 1):
        if not limits.reached(total, now_ms - held[count].made_ms):
            return count
        cut_before = held[count].log_bytes_below if count else 0
        total -= held[count].size_bytes + held[count + 1].log_bytes_below - cut_before
    return max(0, len(held) - 1)
