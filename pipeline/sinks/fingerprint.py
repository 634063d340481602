"""What a task's rows look like, in a few numbers that do not depend on their order: whether a replay brings the same."""

import json
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _LAST, _LENGTH = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0xD6E8FEB86659FD93)
_MASK = (1 << 64) - 1


class Fingerprint(NamedTuple):
    rows: int = 0
    bytes: int = 0
    sum: int = 0

    def joined(self, batch: pa.RecordBatch) -> Self:
        """With these rows' keys and values. Texts and bytes are told by their lengths, and their first and last eight bytes."""
        total, size = 0, 0
        hashes = np.zeros(batch.num_rows, np.uint64)
        for name in ("key", "value"):
            if name in batch.schema.names:
                found, length = _hashes(batch[name])
                hashes = (hashes * _MIX) ^ found
                size += length
        hashes ^= hashes >> np.uint64(29)
        total = int((hashes * _MIX).sum(dtype=np.uint64))
        return type(self)(self.rows + batch.num_rows, self.bytes + size, (self.sum + total) & _MASK)

    def told(self, batch: int) -> str:
        return json.dumps({"batch": batch, **self._asdict()})

    @classmethod
    def read(cls, text: str) -> Self | None:
        """None for what somebody else wrote."""
        try:
            told: Any = json.loads(text)
            return cls(int(told["rows"]), int(told["bytes"]), int(told["sum"]))
        except (ValueError, KeyError, TypeError):
            return None


def _hashes(column: pa.Array) -> tuple[npt.NDArray[np.uint64], int]:
    wide = column.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset : wide.offset + len(wide) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 16, np.uint8)
    if last > first:
        data[8:-8] = np.frombuffer(wide.buffers()[2], np.uint8)[first:last]
    words: npt.NDArray[np.uint64] = np.ndarray(len(data) - 7, "<u8", data.data, strides=(1,))
    starts, ends = offsets[:-1] - first, offsets[1:] - first
    lengths = (ends - starts).astype(np.uint64)
    foreign = np.uint64(64) - np.minimum(lengths, np.uint64(8)) * np.uint64(8)  # bits of its neighbours, in short ones
    foreign = np.minimum(foreign, np.uint64(63))
    hashes = (words[starts + 8] << foreign) * _FIRST
    hashes ^= (words[ends] >> foreign) * _LAST  # eight bytes of room are in front
    hashes ^= lengths * _LENGTH
    hashes[lengths == 0] = 0
    if wide.null_count:
        hashes[~np.asarray(wide.is_valid())] = 1
    return hashes, last - first
