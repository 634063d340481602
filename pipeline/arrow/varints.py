"""Zig-zag varints, a column at a time."""

import numpy as np

from ottla.pipeline.arrow.batches import Int64s, Octets

_ONE = np.uint64(1)
_BYTES_MAX = 10


def read_varints(octets: Octets, at: Int64s) -> tuple[Int64s, Int64s]:
    """The values at these positions, and the positions behind them.

    Positions outside ``octets`` read its first or last byte, and a value of more than ten bytes ends there: whoever calls holds
    the positions that come of it against the bounds of the records.
    """
    octet = octets.take(at, mode="clip")
    value = octet.astype(np.uint64)
    following = at + 1
    if octet.size and octet.max() > 0x7F:
        _read_on(octets, octet, value, following)
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64), following


def _read_on(
    octets: Octets, octet: Octets, value: "np.ndarray[tuple[int], np.dtype[np.uint64]]", following: Int64s
) -> None:
    """The bytes behind the first, of the values that have them."""
    longer = np.flatnonzero(octet > 0x7F)
    value &= np.uint64(0x7F)
    for shift in range(7, 7 * _BYTES_MAX, 7):
        octet = octets.take(following[longer], mode="clip")
        value[longer] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        following[longer] += 1
        longer = longer[octet > 0x7F]
        if not longer.size:
            return


def zigzag(values: Int64s) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """What is written for the values, seven bits a byte."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(values: Int64s) -> Int64s:
    """How many bytes each value takes."""
    rest = zigzag(values)
    sizes = np.ones(len(values), np.int64)
    top = int(rest.max()) if rest.size else 0
    for shift in range(7, max(top.bit_length(), 1), 7):
        sizes += rest >= np.uint64(1 << shift)
    return sizes


def write_varints(octets: Octets, at: Int64s, values: Int64s) -> Int64s:
    """Writes the values at these positions; returns the positions behind them."""
    rest = zigzag(values)
    at = at.copy()
    which = None
    while True:
        more = rest > np.uint64(0x7F)
        octet = (rest & np.uint64(0x7F)).astype(np.uint8) | (more.view(np.uint8) << np.uint8(7))
        if which is None:
            octets[at] = octet
            at += 1
        else:
            octets[at[which]] = octet
            at[which] += 1
        if not more.any():
            return at
        which = np.flatnonzero(more) if which is None else which[more]
        rest = rest[more] >> np.uint64(7)
