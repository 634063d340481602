"""Bytes that begin with a batch, and the headers of the whole batches in them."""

from collections.abc import Iterator

import numpy as np

from ottla.pipeline.arrow.batches import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    Headers,
    Int64s,
    gather,
    walk,
)
from ottla.pipeline.arrow.compression import Scratch
from ottla.pipeline.arrow.crc import crcs
from ottla.pipeline.arrow.records import Blocks, Mask, find_fields, find_records

_OFFSET_MAX = 2**62
_MARKER_BYTES_MAX = 1 << 16
_ABORT = 0


class Input:
    """The whole batches of ``view``; ``end`` is where the last of them ends."""

    def __init__(self, view: memoryview, *, check_crcs: bool = True) -> None:
        self.view = view
        self.octets = np.frombuffer(view, np.uint8)
        self.check_crcs = check_crcs
        self.more_beyond = False
        self.positions, self.end, self.cut_off_bytes = walk(view)
        self._take(gather(self.octets, self.positions))
        self._bad = self._impossible()

    def _take(self, headers: Headers) -> None:
        self.headers = headers
        self.bases: Int64s = headers["base_offset"].astype(np.int64)
        self.lasts: Int64s = self.bases + headers["last_offset_delta"]
        self.sizes: Int64s = headers["batch_length"].astype(np.int64) + LOG_OVERHEAD
        self.codecs = headers["attributes"] & COMPRESSION_MASK

    def below(self, end_offset: int) -> "Input":
        """What comes before the first batch that begins at or behind ``end_offset``.

        A base offset lies outside the CRC. One that is too high shows by the next batch, which then goes back: it stays, as a fault.
        """
        beyond = (self.bases >= end_offset) & ~self._bad
        if beyond.any():
            number = int(beyond.argmax())
            if self._bad[number + 1 : number + 2].any():
                self._bad[number] = True
                return self
            self.positions = self.positions[:number]
            self._take(self.headers[:number])
            self.more_beyond = True
        return self

    def block(self, index: int) -> memoryview:
        """The bytes of the batch's records, compressed as they are."""
        at = int(self.positions[index])
        return self.view[at + HEADER_BYTES : at + int(self.sizes[index])]

    def groups(self, target_bytes: int) -> Iterator[tuple[int, int]]:
        """The batches from which number up to which hold about ``target_bytes``."""
        first, number = 0, len(self.headers)
        while first < number:
            last = int(np.searchsorted(self.positions, self.positions[first] + target_bytes))
            yield first, last
            first = last

    def sound_until(self, first: int, last: int) -> tuple[int, str]:
        """The first batch of [first, last) that is not what it says of itself, and why; ``last`` when all are."""
        bad = self._bad[first:last]
        sound, fault = last, ""
        if bad.any():
            sound = first + int(bad.argmax())
            fault = self._why(sound)
        if self.check_crcs:
            wrong = self._wrong_crc(first, sound)
            if wrong is not None:
                return wrong
        return sound, fault

    def _impossible(self) -> Mask:
        headers = self.headers
        bad: Mask = headers["magic"] != MAGIC
        bad |= (self.bases < 0) | (self.bases > _OFFSET_MAX) | (headers["last_offset_delta"] < 0)
        bad |= headers["records_count"] < 0
        bad[1:] |= self.bases[1:] <= self.lasts[:-1]
        return bad

    def _why(self, index: int) -> str:
        header = self.headers[index]
        if header["magic"] != MAGIC:
            return f"batch version {header['magic']} where {MAGIC} was expected"
        before = f"behind {self.lasts[index - 1]}" if index else "as the first"
        return f"{header['records_count']} records of offsets {self.bases[index]} to {self.lasts[index]}, {before}"

    def _wrong_crc(self, first: int, last: int) -> tuple[int, str] | None:
        return next(self.wrong_crcs(first, last), None)

    def wrong_crcs(self, first: int, last: int) -> Iterator[tuple[int, str]]:
        """The batches of [first, last) whose bytes are not those that were sealed."""
        starts = (self.positions[first:last] + CRC_START).tolist()
        ends = (self.positions[first:last] + self.sizes[first:last]).tolist()
        told = self.headers["crc"][first:last].tolist()
        for index, found in enumerate(crcs(self.view, starts, ends)):
            if found != told[index]:
                yield first + index, f"CRC is {found:08x}, its header says {told[index]:08x}"

    def is_abort(self, index: int) -> bool:
        """Whether the control batch marks the end of an aborted transaction."""
        scratch = Scratch()
        scratch.add(int(self.codecs[index]), self.block(index), _MARKER_BYTES_MAX)
        places = np.array([0, scratch.used])
        blocks = Blocks(
            scratch.octets, places[:1], places[1:], np.array([self.headers["records_count"][index]], np.int64)
        )
        records = find_records(blocks)
        if not len(records.starts):
            return False
        fields, wrong = find_fields(scratch.octets, records.starts[:1], records.ends[:1])
        at = int(fields.keys[0])
        if wrong[0] or fields.key_lengths[0] < 4:
            return False
        return int.from_bytes(scratch.octets[at + 2 : at + 4].tobytes(), "big") == _ABORT
