"""Whether the replicas of a partition hold the same batches: below the high watermark they must, byte for byte."""

from collections.abc import Iterator, Sequence

import numpy as np

from ottla.pipeline.arrow.batches import HEADER, Int64s
from ottla.pipeline.audit.findings import FAULT, NOTE, Finding, Report
from ottla.pipeline.audit.scan import OFFSET_MAX, Batches, Scan
from ottla.pipeline.segments.replicas import Replica

_NOTHING = Batches(np.empty(0, HEADER), np.empty(0, np.int64), np.empty(0, np.int64))


def audit_partition(replicas: Sequence[Replica]) -> Report:
    """Reads all replicas of one partition once, side by side. OSError passes through."""
    # The first is whom the others are held against.
    replicas = sorted(replicas, key=lambda replica: -(replica.high_watermark or 0))
    gaps_below, compacted_to = _compaction(replicas)
    scans = [Scan(replica, gaps_below) for replica in replicas]
    readers = [_Reader(scan) for scan in scans]
    # Whose log begins later cannot be asked about what came before; what one has compacted another may still have.
    start = max([compacted_to, *(replica.start_offset for replica in replicas)])
    watermarks = [replica.high_watermark for replica in replicas if replica.high_watermark is not None]
    end = max(watermarks, default=OFFSET_MAX)
    pairs = [_Comparisons(readers[0], reader, start, end) for reader in readers[1:]]
    while any(not reader.ended for reader in readers):
        for reader in readers:
            reader.fill()
        # Up to there each has given all it has.
        frontier = min((reader.reached for reader in readers), default=OFFSET_MAX)
        parts = [reader.take(frontier) for reader in readers]
        for pair, part in zip(pairs, parts[1:], strict=True):
            pair.hold_against(parts[0], part)
    findings: list[Finding] = []
    for scan in scans:
        findings += scan.notebook.findings()
    for pair in pairs:
        findings += pair.findings()
    if watermarks:
        findings += [_behind(scan, end) for scan in scans if _is_behind(scan, end)]
    return Report(tuple(findings), tuple(scan.standing() for scan in scans))


def _compaction(replicas: Sequence[Replica]) -> tuple[int, int]:
    """Up to where records may be gone, and up to where replicas may differ by which are.

    Each replica is compacted by itself, and copies what its leader has left.
    """
    cleaned = max((replica.cleaned_offset or 0 for replica in replicas), default=0)
    if not any(replica.gaps_marked for replica in replicas):
        return cleaned, cleaned
    return OFFSET_MAX, cleaned or OFFSET_MAX


def _is_behind(scan: Scan, end: int) -> bool:
    """Whose log ends below its own high watermark has a fault already."""
    return scan.next_offset < end and scan.next_offset >= (scan.replica.high_watermark or 0)


def _behind(scan: Scan, end: int) -> Finding:
    message = f"the replica ends at {scan.next_offset}, the high watermark is {end}"
    return _finding(NOTE, "behind", scan.replica, scan.next_offset, message)


class _Reader:
    """A scan, as far as it was not taken yet."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self._batches: Iterator[Batches] = scan.batches()
        self._held = _NOTHING
        self.ended = False

    def fill(self) -> None:
        """Makes sure that there is something, while there is."""
        while not self.ended and not len(self._held.bases):
            try:
                following = next(self._batches, None)
            except OSError as error:
                scan, following = self.scan, None
                path = error.filename or scan.replica.directory
                scan.notebook.add(FAULT, "unreadable", path, scan.next_offset, f"{error.strerror or error}")
            if following is None:
                self.ended = True
            else:
                self._held = following

    @property
    def reached(self) -> int:
        """Behind the last batch that is held."""
        return int(self._held.bases[-1]) + 1 if len(self._held.bases) else OFFSET_MAX

    def take(self, end: int) -> Batches:
        """What begins below ``end``."""
        taken, self._held = self._held.between(0, end), self._held.between(end, OFFSET_MAX + 1)
        return taken


class _Comparisons:
    """One replica against another, which may not have heard of everything that is committed.

    Above its own high watermark it may hold what a leader wrote that was replaced: it cuts that when it starts.
    """

    def __init__(self, first: _Reader, second: _Reader, start: int, end: int) -> None:
        own = second.scan.replica.high_watermark
        heard = end if own is None else min(end, own)
        self._settled = _Comparison(first, second, start, heard)
        self._unsettled = _Comparison(first, second, max(start, heard), end)

    def hold_against(self, first: Batches, second: Batches) -> None:
        self._settled.hold_against(first, second)
        self._unsettled.hold_against(first, second)

    def findings(self) -> Iterator[Finding]:
        yield from self._settled.findings()
        for finding in self._unsettled.findings():
            yield finding._replace(severity=NOTE, kind="unsettled")


class _Comparison:
    """One replica against another: where they differ first, and how often."""

    def __init__(self, first: _Reader, second: _Reader, start: int, end: int) -> None:
        self._readers = first, second
        self._start = start
        self._end = end
        self._differing = 0
        self._first: tuple[int, str] | None = None
        self._missing = [0, 0]
        self._first_missing = [-1, -1]

    def hold_against(self, first: Batches, second: Batches) -> None:
        mine, theirs = (part.between(self._start, OFFSET_MAX + 1) for part in (first, second))
        mine, theirs = (_ending_below(part, self._end) for part in (mine, theirs))
        if len(mine.bases) == len(theirs.bases) and _same(mine, theirs).all():
            return
        common, here, there = np.intersect1d(mine.bases, theirs.bases, return_indices=True)
        differ = np.flatnonzero(~_same(_at(mine, here), _at(theirs, there)))
        if differ.size and self._first is None:
            self._first = int(common[differ[0]]), _told(mine, int(here[differ[0]]), theirs, int(there[differ[0]]))
        self._differing += differ.size
        self._note_missing(0, np.delete(theirs.bases, there))
        self._note_missing(1, np.delete(mine.bases, here))

    def _note_missing(self, number: int, lacking: Int64s) -> None:
        """What the other has and this one lacks, where this one goes on behind it."""
        reader = self._readers[number]
        if reader.ended:
            lacking = lacking[lacking < reader.scan.next_offset]
        if lacking.size:
            if self._first_missing[number] < 0:
                self._first_missing[number] = int(lacking[0])
            self._missing[number] += lacking.size

    def findings(self) -> Iterator[Finding]:
        first, second = (reader.scan.replica for reader in self._readers)
        if self._first is not None:
            offset, told = self._first
            message = f"{self._differing} batches differ from {_name(first)}, the first: {told}"
            yield _finding(FAULT, "divergence", second, offset, message)
        for number, (replica, other) in enumerate(((first, second), (second, first))):
            if self._missing[number]:
                message = f"{self._missing[number]} batches are missing that {_name(other)} has"
                yield _finding(FAULT, "missing", replica, self._first_missing[number], message)


def _ending_below(part: Batches, end: int) -> Batches:
    number = int(np.searchsorted(part.lasts, end))
    return Batches(part.headers[:number], part.bases[:number], part.lasts[:number])


def _at(part: Batches, which: Int64s) -> Batches:
    return Batches(part.headers[which], part.bases[which], part.lasts[which])


def _same(mine: Batches, theirs: Batches) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    same: np.ndarray[tuple[int], np.dtype[np.bool_]] = (mine.bases == theirs.bases) & (mine.lasts == theirs.lasts)
    for name in ("crc", "leader_epoch"):
        same &= mine.headers[name] == theirs.headers[name]
    return same


def _told(mine: Batches, here: int, theirs: Batches, there: int) -> str:
    def one(part: Batches, index: int) -> str:
        header = part.headers[index]
        return f"offsets {part.bases[index]} to {part.lasts[index]}, CRC {header['crc']:08x}, leader epoch {header['leader_epoch']}"

    return f"{one(theirs, there)} here; {one(mine, here)} there"


def _name(replica: Replica) -> str:
    return f"node {replica.node}" if replica.node else replica.directory


def _finding(severity: str, kind: str, replica: Replica, offset: int, message: str) -> Finding:
    return Finding(
        severity, kind, replica.topic, replica.partition, replica.node, replica.directory, -1, offset, message
    )
