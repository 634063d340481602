"""Which partition a vehicle's records go to: Kafka's default for keyed records (murmur2), so other producers agree."""

import numpy as np
from numpy.typing import NDArray

from ottla.pipeline.fleet.numbers import Integers

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)


def partitions_of(keys: NDArray[np.uint8], partitions: int) -> Integers:
    """For each row of a matrix of keys, all of the same length."""
    return (murmur2(keys) & np.uint32(0x7FFF_FFFF)).astype(np.int64) % partitions


def murmur2(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Kafka's variant (Utils.murmur2) of each row."""
    rows, length = keys.shape
    whole = length // 4
    words = np.ascontiguousarray(keys[:, : whole * 4]).view("<u4")
    digest = np.full(rows, _SEED ^ length, np.uint32)
    for place in range(whole):
        word = words[:, place] * _M
        digest = digest * _M ^ (word ^ (word >> np.uint32(24))) * _M
    if length % 4:
        rest = np.zeros(rows, np.uint32)
        for place in range(length % 4):
            rest |= keys[:, whole * 4 + place].astype(np.uint32) << np.uint32(8 * place)
        digest = (digest ^ rest) * _M
    digest = (digest ^ (digest >> np.uint32(13))) * _M
    return digest ^ (digest >> np.uint32(15))
