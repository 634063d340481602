"""Which partition a record goes to: by its key as Kafka's Java client chooses, or by turns in pieces worth a batch."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
_POSITIVE = np.uint32(0x7FFFFFFF)


def murmur2_partitions(keys: pa.Array, count: int) -> Ints:
    """For each key, also for null (whose answer says nothing), a partition below ``count``."""
    return (murmur2(keys) & _POSITIVE).astype(np.int64) % count


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """All keys at once, word by word: the longest first, so that those that still have a word are in front."""
    data, starts, lengths = _bytes_of(keys)
    order = np.argsort(-lengths, kind="stable") if len(lengths) and lengths.min() != lengths.max() else None
    if order is not None:
        starts, lengths = starts[order], lengths[order]
    hashes = _hash(data, starts, lengths)
    if order is None:
        return hashes
    back = np.empty_like(hashes)
    back[order] = hashes
    return back


def _hash(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> npt.NDArray[np.uint32]:
    hashes = _SEED ^ lengths.astype(np.uint32)
    words: npt.NDArray[np.uint32] = np.ndarray(len(data) - 3, "<u4", data.data, strides=(1,))
    whole = lengths >> 2
    for index in range(int(whole[0]) if len(whole) else 0):
        left = len(whole) - int(np.searchsorted(whole[::-1], index, side="right"))
        word = words[starts[:left] + 4 * index] * _M
        word ^= word >> np.uint32(24)
        hashes[:left] = (hashes[:left] * _M) ^ (word * _M)
    _tail(hashes, data, starts + 4 * whole, lengths & 3)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _tail(hashes: npt.NDArray[np.uint32], data: npt.NDArray[np.uint8], at: Ints, left: Ints) -> None:
    for place in (2, 1, 0):
        has = left > place
        hashes[has] ^= data[at[has] + place].astype(np.uint32) << np.uint32(8 * place)
    hashes[left > 0] *= _M


def _bytes_of(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """The keys' bytes with some room behind them, and where each begins and how long it is; null is empty."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    wide = keys.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset : wide.offset + len(wide) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 4, np.uint8)
    if last > first:
        data[:-4] = np.frombuffer(wide.buffers()[2], np.uint8)[first:last]
    return data, offsets[:-1] - first, np.diff(offsets)


class Turns:
    """Records without a key: each piece of about a batch goes to one partition, the next one to the next."""

    def __init__(self, start: int, piece_bytes: int) -> None:
        self._turn, self._piece_bytes, self._taken = start, piece_bytes, 0

    def choose(self, rows: int, row_bytes: float, partitions: list[int]) -> Ints:
        piece = max(1, int(self._piece_bytes / max(row_bytes, 1)))
        turns = self._turn + (self._taken + np.arange(rows)) // piece
        self._turn, self._taken = self._turn + (self._taken + rows) // piece, (self._taken + rows) % piece
        return np.array(partitions, np.int64)[turns % len(partitions)]
