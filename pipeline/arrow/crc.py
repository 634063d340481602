"""CRC-32C: the library's where it is installed, else numpy's, for an executor needs nothing but numpy and pyarrow."""

from collections.abc import Callable, Sequence

from ottla.pipeline.arrow import crc_by_numpy
from ottla.pipeline.arrow.batches import Bytes

crc32c: Callable[[Bytes, int], int]
"""Of bytes, going on from a value."""

crcs: Callable[[memoryview, Sequence[int], Sequence[int]], list[int]]
"""Of the pieces of a buffer between these places."""

try:
    from crc32c import crc32c
except ImportError:
    crc32c, crcs = crc_by_numpy.crc32c, crc_by_numpy.crcs
else:

    def crcs(data: memoryview, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        return [crc32c(data[start:end], 0) for start, end in zip(starts, ends, strict=True)]
