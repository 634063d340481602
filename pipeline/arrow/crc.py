"""CRC-32C: the library's where it is installed, else numpy's, for an executor needs nothing but numpy and pyarrow."""

from collections.abc import Callable

from ottla.pipeline.arrow import crc_by_numpy
from ottla.pipeline.arrow.batches import Bytes

crc32c: Callable[[Bytes, int], int]
"""Of bytes, going on from a value."""

try:
    from crc32c import crc32c
except ImportError:
    crc32c = crc_by_numpy.crc32c
