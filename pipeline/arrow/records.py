"""Where the records of many batches lie, and where the fields of the records: found for all of them at once.

A record's length is known only where it begins, so finding records is a walk. The k-th step is taken in all batches together, as
long as there are enough of them to be worth it; what remains is walked record by record. Nothing here believes a length: the walk
of a batch has to end where the batch ends, and the fields of a record where the record does, and only then is anything used.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.pipeline.arrow.batches import Int64s, Octets
from ottla.pipeline.arrow.varints import read_varints

RECORD_BYTES_MIN = 7
_BODY_BYTES_MIN = 6
_TOGETHER_MIN = 96
"""Batches with which a common step costs less than a step in each of them."""

Mask = NDArray[np.bool_]


class Blocks(NamedTuple):
    """The uncompressed records of some batches, in one buffer, in rising order."""

    octets: Octets
    starts: Int64s
    ends: Int64s
    counts: Int64s

    def upto(self, number: int) -> "Blocks":
        return Blocks(self.octets, self.starts[:number], self.ends[:number], self.counts[:number])


class Records(NamedTuple):
    """Where each record begins behind its length, and ends; how many batches are sound (those behind are not in it), and why not."""

    starts: Int64s
    ends: Int64s
    batches: int
    fault: str


def find_records(blocks: Blocks) -> Records:
    """The records of all blocks up to the first whose records are not what its header says."""
    impossible = (blocks.counts < 0) | (blocks.counts * RECORD_BYTES_MIN > blocks.ends - blocks.starts)
    if impossible.any():
        bad = int(impossible.argmax())
        count, size = int(blocks.counts[bad]), int(blocks.ends[bad] - blocks.starts[bad])
        found = find_records(blocks.upto(bad))
        fault = found.fault or f"{count} records cannot be in {size} bytes"
        return found._replace(fault=fault)
    first = np.cumsum(blocks.counts) - blocks.counts
    total = int(blocks.counts.sum())
    starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    wrong = _step_all(blocks, first, starts, ends)
    if wrong.any():
        bad = int(wrong.argmax())
        at = int(first[bad])
        return Records(starts[:at], ends[:at], bad, "its records do not end where the batch does")
    return Records(starts, ends, len(blocks.counts), "")


def _step_all(blocks: Blocks, first: Int64s, starts: Int64s, ends: Int64s) -> Mask:
    """Fills in where records are; returns which blocks' records cannot be right."""
    order = np.argsort(-blocks.counts, kind="stable")
    counts, at, place = blocks.counts[order], blocks.starts[order].copy(), first[order]
    limits = blocks.ends[order]
    wrong = np.zeros(len(order), np.bool_)
    done = 0
    # How many blocks have a k-th record: they are the first of `order`.
    active = int(np.searchsorted(-counts, 0, side="left"))
    while active >= _TOGETHER_MIN:
        steps = int(counts[active - 1])  # all of the active have that many
        _step_together(
            blocks.octets, at[:active], place[:active] + done, steps - done, limits[:active], wrong, starts, ends
        )
        done = steps
        active = int(np.searchsorted(-counts, -done, side="left"))
    for index in range(active):
        if not wrong[index]:
            at[index] = _step_alone(
                blocks.octets,
                int(at[index]),
                int(limits[index]),
                slice(int(place[index]) + done, int(place[index]) + int(counts[index])),
                starts,
                ends,
            )
    wrong |= at != limits
    found = np.empty(len(order), np.bool_)
    found[order] = wrong
    return found


def _step_together(
    octets: Octets, at: Int64s, place: Int64s, steps: int, limits: Int64s, wrong: Mask, starts: Int64s, ends: Int64s
) -> None:
    """``steps`` records further in each of the blocks; ``at`` moves."""
    bad = wrong[: len(at)]
    for step in range(steps):
        length, following = read_varints(octets, at)
        bad |= length < _BODY_BYTES_MIN
        bad |= length > limits - following
        np.copyto(length, 0, where=bad)
        starts[place + step] = following
        np.add(following, length, out=at)
        ends[place + step] = at


def _step_alone(octets: Octets, start: int, limit: int, places: slice, starts: Int64s, ends: Int64s) -> int:
    """Where the walk of a block ends; -1 when a length cannot be."""
    block = octets[start:limit].tobytes()
    found: list[int] = []
    add, at = found.append, 0
    try:
        for _ in range(places.stop - places.start):
            octet = block[at]
            if octet < 0x80:
                at += 1 + (octet >> 1)
            else:
                value, shift = octet & 0x7F, 7
                at += 1
                while (octet := block[at]) > 0x7F:
                    value |= (octet & 0x7F) << shift
                    shift += 7
                    if shift > 63:
                        return -1
                    at += 1
                at += 1 + ((value | octet << shift) >> 1)
            add(at)
    except IndexError:
        return -1
    # What was found is held against what it means here: negative and short lengths, and one of many bytes, step as well.
    before = np.array([0, *found], np.int64) + start
    length, following = read_varints(octets, before[:-1])
    starts[places], ends[places] = following, before[1:]
    return -1 if (length < _BODY_BYTES_MIN).any() or (following + length != before[1:]).any() else int(before[-1])


class Fields(NamedTuple):
    """Where the fields of records lie. A length of -1 is null; ``headers`` is where the headers begin, behind their count."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    keys: Int64s
    key_lengths: Int64s
    values: Int64s
    value_lengths: Int64s
    headers: Int64s
    header_counts: Int64s


def find_fields(octets: Octets, starts: Int64s, ends: Int64s) -> tuple[Fields, Mask]:
    """The fields of the records, and which records cannot be right."""
    timestamp_deltas, at = read_varints(octets, starts + 1)  # behind the attributes
    offset_deltas, at = read_varints(octets, at)
    key_lengths, keys = read_varints(octets, at)
    at, wrong = _behind(keys, key_lengths, ends)
    value_lengths, values = read_varints(octets, at)
    at, bad = _behind(values, value_lengths, ends)
    wrong |= bad
    header_counts, headers = read_varints(octets, at)
    # A header takes two bytes at least.
    wrong |= (headers > ends) | (header_counts < 0) | (header_counts > (ends - headers) >> 1)
    wrong |= (header_counts == 0) & (headers != ends)
    return (
        Fields(timestamp_deltas, offset_deltas, keys, key_lengths, values, value_lengths, headers, header_counts),
        wrong,
    )


def _behind(at: Int64s, lengths: Int64s, ends: Int64s) -> tuple[Int64s, Mask]:
    """The positions behind fields of these lengths, and which fields cannot be."""
    wrong = (lengths < -1) | (lengths > ends - at)
    sizes = np.maximum(lengths, 0)
    if wrong.any():
        sizes[wrong] = 0
    return at + sizes, wrong


class HeaderFields(NamedTuple):
    """The headers of all records, one behind the other; ``lists`` is where those of each record begin, and the last ones end."""

    lists: Int64s
    keys: Int64s
    key_lengths: Int64s
    values: Int64s
    value_lengths: Int64s


def find_headers(octets: Octets, fields: Fields, ends: Int64s) -> tuple[HeaderFields, Mask]:
    """The headers of the records, none of which `find_fields` found wrong; and which of them are wrong by their headers."""
    counts = fields.header_counts
    lists = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=lists[1:])
    keys, key_lengths, values, value_lengths = (np.zeros(int(lists[-1]), np.int64) for _ in range(4))
    wrong = np.zeros(len(counts), np.bool_)
    which, at, number = np.flatnonzero(counts), fields.headers.copy(), 0
    while which.size:
        place, limit = lists[which] + number, ends[which]
        key_lengths[place], keys[place] = read_varints(octets, at[which])
        following, bad = _behind(keys[place], key_lengths[place], limit)
        bad |= key_lengths[place] < 0
        value_lengths[place], values[place] = read_varints(octets, following)
        following, bad_value = _behind(values[place], value_lengths[place], limit)
        bad |= bad_value | (following > limit)
        at[which] = following
        wrong[which] |= bad
        number += 1
        which = which[(counts[which] > number) & ~bad]
    wrong |= (counts > 0) & (at != ends)
    return HeaderFields(lists, keys, key_lengths, values, value_lengths), wrong
