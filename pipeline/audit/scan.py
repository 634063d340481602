"""One replica's log, batch by batch: what its headers say, and whether each batch has its CRC."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ottla.pipeline.arrow.batches import CONTROL, HEADER_BYTES, MAGIC, Headers, Int64s, impossible
from ottla.pipeline.arrow.input import Input
from ottla.pipeline.audit.findings import FAULT, NOTE, Notebook, Standing
from ottla.pipeline.audit.sequences import Sequences
from ottla.pipeline.segments.pieces import Pieces
from ottla.pipeline.segments.planning import next_cut
from ottla.pipeline.segments.replicas import Replica, Segment

OFFSET_MAX = 2**62


class Batches(NamedTuple):
    """Batches in the order of their offsets."""

    headers: Headers
    bases: Int64s
    lasts: Int64s

    def between(self, start: int, end: int) -> "Batches":
        """Those that begin in [start, end)."""
        first, last = np.searchsorted(self.bases, (start, end))
        return Batches(self.headers[first:last], self.bases[first:last], self.lasts[first:last])


class Scan:
    """Goes over a replica once. What it gives are the batches that are in order; what is wrong is in the notebook."""

    def __init__(self, replica: Replica, gaps_below: int) -> None:
        """``gaps_below``: up to there compaction may have taken records."""
        self.replica = replica
        self.notebook = Notebook(replica.topic, replica.partition, replica.node)
        self.next_offset = -1
        self._gaps_below = gaps_below
        self._before_gap = -1
        self._sequences = Sequences(self.notebook)
        self._epoch = -1
        self._batches = self._records = self._control = self._bytes = 0

    def batches(self) -> Iterator[Batches]:
        """OSError passes through."""
        for number, segment in enumerate(self.replica.segments):
            self._begin(segment)
            yield from self._segment(segment, last=number == len(self.replica.segments) - 1)
        self.next_offset = max(self.next_offset, 0)  # nobody wrote here yet
        self._look_at_ends()

    def standing(self) -> Standing:
        replica = self.replica
        return Standing(
            replica.topic,
            replica.partition,
            replica.topic_id,
            replica.node,
            replica.directory,
            replica.start_offset,
            max(self.next_offset, replica.start_offset),
            replica.high_watermark,
            self._batches,
            self._records,
            self._control,
            self._bytes,
        )

    def _begin(self, segment: Segment) -> None:
        if self.next_offset < 0:
            self.next_offset = segment.base_offset
            start = self.replica.log_start_offset
            if start is not None and start < segment.base_offset and segment.base_offset > self._gaps_below:
                message = f"the first segment begins at {segment.base_offset}, the log at {start}"
                self.notebook.add(FAULT, "gap", segment.path, start, message)

    def _segment(self, segment: Segment, *, last: bool) -> Iterator[Batches]:
        pieces = Pieces(segment.path, 0, segment.size_bytes)
        for piece in pieces:
            given = Input(piece.data, check_crcs=False)
            if len(given.headers):
                yield self._taken(segment, piece.position, given)
            following, needed = piece.position + given.end, given.cut_off_bytes
            fault = impossible(piece.data, given.end)
            if fault or (piece.last and not given.end):
                following = self._lost(segment, following, fault or "the file ends within a batch", last=last)
                needed = 0
            pieces.next_at(following, max(needed, HEADER_BYTES))

    def _lost(self, segment: Segment, position: int, why: str, *, last: bool) -> int:
        """Where to go on, behind bytes that are no batch."""
        following = next_cut(segment, position)
        if last and following is None:
            self.notebook.add(NOTE, "torn-tail", segment.path, self.next_offset, why, position)
        else:
            self.notebook.add(FAULT, "unreadable", segment.path, self.next_offset, why, position)
        return segment.size_bytes if following is None else following

    def _taken(self, segment: Segment, at: int, given: Input) -> Batches:
        """Counts and checks the batches; those of them that are in order."""
        headers, bases, lasts = given.headers, given.bases, given.lasts
        for index, message in given.wrong_crcs(0, len(headers)):
            self.notebook.add(FAULT, "crc", segment.path, int(bases[index]), message, at + int(given.positions[index]))
        control = headers["attributes"] & CONTROL != 0
        self._batches += len(headers)
        self._bytes += int(given.sizes.sum())
        self._control += int(control.sum())
        self._records += int(headers["records_count"][~control].astype(np.int64).sum())
        ordered = self._in_order(segment, at, given)
        self._look_at_epochs(segment, at, given, ordered)
        batches = Batches(headers[ordered], bases[ordered], lasts[ordered])
        self._sequences.look_at(batches.headers, batches.bases, segment.path)
        return batches

    def _in_order(self, segment: Segment, at: int, given: Input) -> Int64s:
        """Which batches follow each other; notes those that do not, and what is missing between them."""
        headers, bases, lasts = given.headers, given.bases, given.lasts
        before = np.concatenate(([self.next_offset], lasts[:-1] + 1))
        plausible = (headers["magic"] == MAGIC) & (bases >= 0) & (bases <= OFFSET_MAX) & (lasts >= bases)
        counts = headers["records_count"].astype(np.int64)
        plausible &= (counts >= 0) & (counts <= lasts - bases + 1)
        if plausible.all() and (bases == before).all() and (lasts[-1:] < OFFSET_MAX).all():
            self._look_at_counts(segment, at, given)
            self.next_offset = int(lasts[-1]) + 1
            return np.arange(len(bases))
        return self._one_by_one(segment, at, given, plausible.tolist())

    def _one_by_one(self, segment: Segment, at: int, given: Input, plausible: list[bool]) -> Int64s:
        kept = []
        for index, (base, end) in enumerate(zip(given.bases.tolist(), given.lasts.tolist(), strict=True)):
            position = at + int(given.positions[index])
            if not plausible[index]:
                message = f"{given.headers['records_count'][index]} records of offsets {base} to {end}"
                self.notebook.add(FAULT, "header", segment.path, base, message, position)
            elif base < self.next_offset and not self._gap_was_none(segment, position, base):
                self._went_back(segment, position, base, end)
            else:
                if base > self.next_offset:
                    self._gap(segment, position, base)
                self.next_offset = end + 1
                kept.append(index)
        return np.array(kept, np.int64)

    def _went_back(self, segment: Segment, position: int, base: int, end: int) -> None:
        kind = "overlap" if end >= self.next_offset else "regression"
        message = f"offsets {base} to {end} behind {self.next_offset - 1}"
        self.notebook.add(FAULT, kind, segment.path, base, message, position)

    def _gap_was_none(self, segment: Segment, position: int, base: int) -> bool:
        """Base offsets lie outside the CRC: whether one that was too high made the gap, and this batch follows what came before it."""
        if not 0 <= self._before_gap <= base:
            return False
        message = f"the batches before this one say offsets up to {self.next_offset - 1}, and cannot"
        self.notebook.add(FAULT, "header", segment.path, self._before_gap, message, position)
        self.next_offset, self._before_gap = base, -1
        return True

    def _gap(self, segment: Segment, position: int, base: int) -> None:
        self._before_gap = self.next_offset
        if base > self._gaps_below:
            message = f"offsets {self.next_offset} to {base - 1} are missing"
            self.notebook.add(FAULT, "gap", segment.path, self.next_offset, message, position)

    def _look_at_counts(self, segment: Segment, at: int, given: Input) -> None:
        """Where nothing was compacted a batch has a record for each offset."""
        counts = given.headers["records_count"].astype(np.int64)
        fewer = (counts < given.lasts - given.bases + 1) & (given.lasts >= self._gaps_below)
        for index in np.flatnonzero(fewer).tolist():
            message = f"{counts[index]} records for offsets {given.bases[index]} to {given.lasts[index]}"
            position = at + int(given.positions[index])
            self.notebook.add(FAULT, "count", segment.path, int(given.bases[index]), message, position)

    def _look_at_epochs(self, segment: Segment, at: int, given: Input, ordered: Int64s) -> None:
        epochs = given.headers["leader_epoch"][ordered].astype(np.int64)
        highest = np.maximum.accumulate(np.concatenate(([self._epoch], epochs)))
        for index in np.flatnonzero((epochs >= 0) & (epochs < highest[:-1])).tolist():
            message = f"leader epoch {epochs[index]} behind {highest[index]}"
            place = int(ordered[index])
            self.notebook.add(
                FAULT, "epoch", segment.path, int(given.bases[place]), message, at + int(given.positions[place])
            )
        self._epoch = int(highest[-1])

    def _look_at_ends(self) -> None:
        replica = self.replica
        watermark = replica.high_watermark
        if watermark is not None and self.next_offset < watermark:
            message = f"the log ends at {self.next_offset}, below its high watermark {watermark}"
            self.notebook.add(FAULT, "short", replica.directory, self.next_offset, message)
