"""What the core knows of the log: where it starts and ends, what is durable, and which epoch wrote what.

Offsets are exclusive ends unless they are called a start. The bytes stay with the shell.
"""

from typing import NamedTuple

import msgspec


class OffsetAndEpoch(NamedTuple):
    """An end offset (exclusive) and the epoch of the last record below it: the name of a log prefix, and of a snapshot."""

    offset: int
    epoch: int


class LogSummary(msgspec.Struct):
    """Start, end and epochs of the metadata log. ``base_epoch`` is the epoch of the record just below ``start``
    (from the snapshot; 0 for a log that begins at offset 0).

    ``marks``: what the leader of each epoch gave it when it began, where that is known. In an epoch there is one leader, unless a
    voter's disk forgot its vote: then two histories may have records of one epoch, and only the mark tells them apart."""

    start: int = 0
    base_epoch: int = 0
    end: int = 0
    durable_end: int = 0
    epochs: tuple[tuple[int, int], ...] = ()  # (epoch, first offset of it), ascending in both
    snapshot: OffsetAndEpoch | None = None  # the latest one, if any
    marks: dict[int, int] = {}

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else self.base_epoch

    @property
    def last_mark(self) -> int:
        """The mark of the last epoch; 0: not known."""
        return self.marks.get(self.last_epoch, 0)

    def epoch_below(self, end_offset: int) -> int:
        """The epoch of the record just below ``end_offset``."""
        return next((epoch for epoch, start in reversed(self.epochs) if start < end_offset), self.base_epoch)

    def holds(self, prefix: OffsetAndEpoch) -> bool:
        """Whether the log goes on after ``prefix``, and is what that is the name of."""
        return self.start <= prefix.offset <= self.end and self.epoch_below(prefix.offset) == prefix.epoch

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch <= ``epoch`` in this log, with the offset where it ends (KIP-595, kraft.md 4.9).

        An epoch older than the whole log is answered with itself, ending where the log's first epoch starts.
        """
        following = self.end
        for known, start in reversed(self.epochs):
            if known <= epoch:
                return OffsetAndEpoch(following, known)
            following = start
        return OffsetAndEpoch(following, min(epoch, self.base_epoch) if self.start else epoch)

    def append(self, epoch: int, base_offset: int, end: int, mark: int = 0) -> None:
        """Notes that records [base_offset, end) of ``epoch`` were appended."""
        assert base_offset == self.end, f"append at {base_offset} to a log that ends at {self.end}"
        assert epoch >= self.last_epoch, f"epoch {epoch} after {self.last_epoch}"
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs = (*self.epochs, (epoch, base_offset))
            if mark:
                self.marks = {epoch: mark, **self.marks}
        self.end = end

    def truncate(self, offset: int) -> None:
        """Notes that everything from ``offset`` on was cut off, snapshots of it too. The one that the log begins with stays."""
        assert self.start <= offset <= self.end, f"truncate to {offset} a log of {self.start} to {self.end}"
        self.epochs = tuple((epoch, start) for epoch, start in self.epochs if start < offset)
        self._forget_marks()
        self.end = offset
        self.durable_end = min(self.durable_end, offset)
        if self.snapshot is not None and self.snapshot.offset > offset:
            self.snapshot = OffsetAndEpoch(self.start, self.base_epoch) if self.start else None

    def restart_at(self, snapshot: OffsetAndEpoch, mark: int = 0) -> None:
        """Notes that the log is empty and continues after ``snapshot``; ``mark`` is of its epoch."""
        self.start = self.end = self.durable_end = snapshot.offset
        self.base_epoch = snapshot.epoch
        self.epochs, self.marks = (), {snapshot.epoch: mark} if mark else {}
        self.snapshot = snapshot

    def advance_start(self, offset: int) -> None:
        """Notes that records below ``offset`` were removed (a snapshot covers them)."""
        assert self.start <= offset <= self.end, f"truncate to {offset} a log of {self.start} to {self.end}"
        self.base_epoch = self.epoch_below(offset)
        kept = tuple((epoch, start) for epoch, start in self.epochs if start >= offset)
        older = [epoch for epoch, start in self.epochs if start < offset]
        still_open = older and offset < self.end and (not kept or kept[0][1] > offset)
        self.epochs = ((older[-1], offset), *kept) if still_open else kept
        self.start = offset
        self._forget_marks()

    def _forget_marks(self) -> None:
        there = {self.base_epoch, *(epoch for epoch, _ in self.epochs)}
        self.marks = {epoch: mark for epoch, mark in self.marks.items() if epoch in there}
