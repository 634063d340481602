"""What was aborted in a replica's log, and where the first transaction begins that is still open.

The ``.txnindex`` files say what was aborted, and a producer snapshot (``.snapshot``, Kafka's format) which transactions were open at its
offset. Neither is believed further than the newest sound snapshot: what comes behind it is read from the batches, header by header.
"""

import os
import re
from struct import Struct
from typing import NamedTuple

import numpy as np

from ottla.pipeline.arrow.batches import CONTROL, TRANSACTIONAL
from ottla.pipeline.arrow.crc import crc32c
from ottla.pipeline.arrow.input import Input
from ottla.pipeline.segments.pieces import Pieces
from ottla.pipeline.segments.replicas import Replica, Segment

_INDEX_ENTRY = Struct(">hqqqq")
_SNAPSHOT_PREFIX = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_START = 6
_SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot")

Aborted = tuple[int, int, int]
"""Producer id, first offset, last offset (of its marker)."""


class Transactions(NamedTuple):
    """``open_from`` is where the first open transaction begins; None when none is open."""

    aborted: tuple[Aborted, ...]
    open_from: int | None


def transactions_of(replica: Replica) -> Transactions:
    """What the log's files say about its transactions. OSError passes through."""
    offset, open_firsts = _newest_snapshot(replica.directory)
    if replica.segments and offset < replica.segments[0].base_offset:
        open_firsts = {}  # batches behind it are gone, and markers with them: what is open goes by those that are left
    known = [entry for segment in replica.segments for entry in _index_of(segment) if entry[2] < offset]
    walk = _Walk(open_firsts)
    for number, segment in enumerate(replica.segments):
        following = replica.segments[number + 1].base_offset if number + 1 < len(replica.segments) else None
        if following is None or following > offset:
            walk.through(segment, offset)
    return Transactions((*known, *walk.aborted), min(walk.open.values(), default=None))


def overlapping(aborted: tuple[Aborted, ...], start: int, end: int) -> tuple[Aborted, ...]:
    """Those that reach into [start, end)."""
    return tuple(entry for entry in aborted if entry[2] >= start and entry[1] < end)


def _index_of(segment: Segment) -> list[Aborted]:
    try:
        with open(segment.path.removesuffix(".log") + ".txnindex", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _INDEX_ENTRY.size
    return [(producer, first, last) for _, producer, first, last, _ in _INDEX_ENTRY.iter_unpack(data[:whole])]


def _newest_snapshot(directory: str) -> tuple[int, dict[int, int]]:
    """The offset of the newest snapshot that is sound, and the first offsets of what was open there; (0, nothing) without one."""
    offsets = sorted(
        (int(match[1]) for name in os.listdir(directory) if (match := _SNAPSHOT.fullmatch(name))), reverse=True
    )
    for offset in offsets:
        with open(f"{directory}/{offset:020d}.snapshot", "rb") as file:
            found = _open_in(file.read())
        if found is not None:
            return offset, found
    return 0, {}


def _open_in(data: bytes) -> dict[int, int] | None:
    """The first offsets of open transactions by producer; None for bytes that are no snapshot."""
    if len(data) < _SNAPSHOT_PREFIX.size:
        return None
    _, crc, count = _SNAPSHOT_PREFIX.unpack_from(data)
    rows = data[_SNAPSHOT_PREFIX.size :]
    if crc != crc32c(memoryview(data)[_CRC_START:], 0) or count * _SNAPSHOT_ENTRY.size != len(rows):
        return None
    return {row[0]: row[7] for row in _SNAPSHOT_ENTRY.iter_unpack(rows) if row[7] >= 0}


class _Walk:
    """Goes over the headers of batches, and keeps which transactions are open."""

    def __init__(self, open_firsts: dict[int, int]) -> None:
        self.open = dict(open_firsts)
        self.aborted: list[Aborted] = []

    def through(self, segment: Segment, from_offset: int) -> None:
        """Stops where the file holds no batch: whoever reads there is told."""
        pieces = Pieces(segment.path, 0, segment.size_bytes)
        for piece in pieces:
            given = Input(piece.data, check_crcs=False)
            sound, fault = given.sound_until(0, len(given.headers))
            chosen = (given.headers["attributes"][:sound] & TRANSACTIONAL != 0) & (given.bases[:sound] >= from_offset)
            for index in np.flatnonzero(chosen).tolist():
                self._take(given, index)
            goes_on = given.end or (given.cut_off_bytes > len(piece.data) and not piece.last)
            if fault or not goes_on:
                return
            pieces.next_at(piece.position + given.end, given.cut_off_bytes)

    def _take(self, given: Input, index: int) -> None:
        producer, base = int(given.headers["producer_id"][index]), int(given.bases[index])
        if not int(given.headers["attributes"][index]) & CONTROL:
            self.open.setdefault(producer, base)
            return
        first = self.open.pop(producer, None)
        if first is not None and given.is_abort(index):
            self.aborted.append((producer, first, base))
